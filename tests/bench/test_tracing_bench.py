"""What `ramet bench tracing` says of its turns."""

from ramet.bench.tracing import summary


def turn(off: float, on: float) -> dict[str, dict[str, float]]:
    return {
        "off": {"tokens_per_s": off, "cpu_us_per_token": 100 / off},
        "on": {"tokens_per_s": on, "cpu_us_per_token": 100 / on},
    }


def test_a_ratio_compares_rounds_of_the_same_turn() -> None:
    made = summary([turn(10, 9), turn(1000, 900), turn(20, 18), turn(50, 10)])
    on = made["over_off"]["on"]
    assert on["tokens_per_s"]["median"] == 0.9 and on["cpu_us_per_token"]["median"] == 1.1111
    assert "off" not in made["over_off"] and made["turns"] == 4


def test_the_interval_holds_the_median_and_shrinks_with_turns() -> None:
    few = summary([turn(100, 100 - i % 8) for i in range(8)])["over_off"]["on"]["tokens_per_s"]
    many = summary([turn(100, 100 - i % 8) for i in range(800)])["over_off"]["on"]["tokens_per_s"]
    for told in (few, many):
        assert told["low"] <= told["median"] <= told["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]
