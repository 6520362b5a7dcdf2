"""One source of options: what flags, YAML and environment make of it, and who wins."""

import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.ipc.params import SamplingParams
from ramet.runtime.commands import run
from ramet.runtime.config import Args, make_args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.flags import ALIASES, BY_NAME, OPTIONS, parse, serve_parser, warn_misspelt
from ramet.runtime.options.media_options import read_media_hosts
from ramet.runtime.options.option import Option, options_of


def printed(capsys: pytest.CaptureFixture[str], argv: list[str], env: dict[str, str]) -> str:
    with pytest.raises(SystemExit) as left:
        parse([*argv, "--print-config"], env)
    assert left.value.code == 0
    return capsys.readouterr().out


def test_every_field_of_every_group_is_an_option() -> None:
    fields = {(g, f) for g in Args.__struct_fields__ for f in getattr(Args(), g).__struct_fields__}
    assert {(o.group, o.name) for o in OPTIONS} == fields
    assert len(BY_NAME) == len(OPTIONS), "two groups share a field name"


def test_every_option_has_a_description_and_every_alias_an_option() -> None:
    assert [o.name for o in OPTIONS if not o.about] == []
    assert set(ALIASES.values()) <= set(BY_NAME)
    assert not set(ALIASES) & set(BY_NAME)


def test_nothing_given_is_the_defaults() -> None:
    assert parse([], {}) == Args()


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("port: 1001\npage-size: 16\nmax_wait_s: 3\nlog_requests: true\n")
    env = {"RAMET_PORT": "1002", "RAMET_PAGE_SIZE": "1", "RAMET_CONFIG": str(file)}
    args = parse(["--port", "1003"], env)
    assert (args.serve.port, args.cache.page_size, args.schedule.max_wait_s) == (1003, 1, 3.0)
    assert args.serve.log_requests and args.serve.host == "127.0.0.1"


def test_the_configuration_shows_what_was_measured_for_its_threads(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, ["--num-threads", "61"], {})
    assert "# this CPU: measured at the first start with 61 threads" in shown


def test_printed_threads_are_those_of_the_cores_that_the_model_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    core = min(os.sched_getaffinity(0))
    shown = printed(capsys, ["--cpu-affinity", str(core)], {})
    assert "# this CPU: measured at the first start with 1 thread\n" in shown


def test_a_flag_can_unset_what_the_file_set(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("context_length: 512\ndisable_radix_cache: true\n")
    args = parse(["--config", str(file), "--context-length", "none", "--no-disable-radix-cache"], {})
    assert args.model.context_length is None and not args.cache.disable_radix_cache


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "99999"], "--port is '99999', must be an integer in [0, 65535]"),
        (["--port", "x"], "--port is 'x', must be an integer in [0, 65535]"),
        (["--mem-fraction-static", "nan"], "--mem-fraction-static is 'nan', must be a number in (0, 1), or none"),
        (["--mem-fraction-static", "1"], "--mem-fraction-static is '1', must be a number in (0, 1), or none"),
        (["--watchdog-timeout", "inf"], "--watchdog-timeout is 'inf', must be a number in (0, 31536000]"),
        (["--page-size", "3"], "--page-size is '3', must be one of 1, 16, 64"),
        (["--dtype", "int4"], "--dtype is 'int4', must be one of auto, bfloat16, float16, float32"),
        (["--context-length", "1"], "--context-length is '1', must be an integer in [2, 16777216], or none"),
        (["--watchdog-timeout", "1e10"], "--watchdog-timeout is '1e10', must be a number in (0, 31536000]"),
        (["--drain-timeout-s", "1e308"], "--drain-timeout-s is '1e308', must be a number in [0, 86400]"),
        (["--scripted-step-ms", "1e308"], "--scripted-step-ms is '1e308', must be a number in [0, 86400000]"),
        (["--prot", "1"], "--prot is not an option; did you mean --port?"),
        (["--tp", "2"], "--tp is not an option"),
        (["--temperature", "1"], "--temperature is not an option"),
        (["stray"], "unexpected argument 'stray'"),
    ],
)
def test_a_wrong_flag_is_one_line_with_flag_value_and_range(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(argv, {})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot: 1", "prot is not an option; did you mean port?"),
        ("port: [1]", "port is [1], must be an integer in [0, 65535]"),
        ("port: true", "port is True, must be an integer in [0, 65535]"),
        ("log_requests: 7", "log_requests is 7, must be true or false"),
        ("model_path: 7", "model_path is 7, must be text"),
        (f"session_timeout_s: {10**400}", "must be a number in (0, 31536000]"),
        ("port: null", "port is None, must be an integer in [0, 65535]"),
        ("page_size: true", "page_size is True, must be one of 1, 16, 64"),
        ("- 1", "must be a mapping from option to value, is a list"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_file_names_key_value_and_range(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"c\.yaml") as error:
        parse(["--config", str(file)], {})
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_number_has_bounds(option: Option) -> None:
    noun = option.valid.removesuffix(", or none")
    assert not noun.startswith(("a number", "an integer")) or re.search(r" in [\[(].*[\])]$", noun), option.valid


@pytest.mark.parametrize("name", ["api_key", "admin_api_key"])
@pytest.mark.parametrize(
    "key", ["sesame\n", " sesame", "sesame ", "ses\name", "ses\x00ame", "sesame\x7f", "\u00a0sesame"]
)
def test_a_key_that_nobody_could_send_is_refused_and_not_printed(name: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} ") as error:
        resolve(make_args(**{name: key}))
    assert "ame" not in str(error.value)


@pytest.mark.parametrize("key", ["sesame", "open sesame", "s\u00e9same", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"])
def test_other_keys_are_taken(key: str) -> None:
    assert resolve(make_args(api_key=key)).serve.api_key == key


def test_one_place_for_the_lines_of_requests_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("logs")
    for other in ("./logs", "logs/", "x/../logs", str(tmp_path / "logs"), "link"):
        with pytest.raises(ConfigError, match=f"--log-requests-target has 'logs' and {other!r}"):
            resolve(make_args(log_requests_target=["logs", other]))
    with pytest.raises(ConfigError, match="has 'log' and 'log'"):
        resolve(make_args(log_requests_target=["log", "log"]))
    assert resolve(make_args(log_requests_target=["log", "stdout", "logs", "./log"])) is not None


@pytest.mark.parametrize(
    "word",
    ["*", "*.example", "https://a.example", "a.example/x", "a.example:0", "a.example:99999", "2130706433", "127.1",
     "0177.0.0.1", "[::1", "[::1%25lo]", "::1", "a b", "user@a.example"],
)  # fmt: skip
def test_a_media_domain_is_a_host_in_its_usual_spelling(word: str) -> None:
    with pytest.raises(ConfigError, match=r"--allowed-media-domains has .*, must be a host with or without a port"):
        resolve(make_args(allowed_media_domains=["a.example", word]))


def test_media_domains_are_read_as_names_and_addresses() -> None:
    words = ["A.Example.", "a.example:8080", "127.0.0.1:90", "[FD00:0::7]:91"]
    expected = {("a.example", None), ("a.example", 8080), ("127.0.0.1", 90), ("fd00::7", 91)}
    assert read_media_hosts(words) == expected


def test_the_folder_of_media_is_a_folder_and_not_all_of_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--allowed-local-media-path /nowhere is not a folder on this machine"):
        resolve(make_args(allowed_local_media_path="/nowhere"))
    (tmp_path / "root").symlink_to("/")
    for every in ("/", str(tmp_path / "root")):
        with pytest.raises(ConfigError, match=r"must be a folder of media: every file would be open"):
            resolve(make_args(allowed_local_media_path=every))
    assert resolve(make_args(allowed_local_media_path=str(tmp_path))) is not None


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"--config /nowhere/c\.yaml cannot be read"):
        parse(["--config", "/nowhere/c.yaml"], {})


def test_a_wrong_variable_is_named_and_an_empty_one_is_unset() -> None:
    with pytest.raises(ConfigError, match=r"RAMET_PORT is '-1', must be an integer in \[0, 65535\]"):
        parse([], {"RAMET_PORT": "-1"})
    assert parse([], {"RAMET_PORT": "", "RAMET_CONTEXT_LENGTH": ""}) == Args()


def test_a_misspelt_variable_is_pointed_out_and_a_foreign_one_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    warn_misspelt({"RAMET_PAGESIZE": "16", "RAMET_BUILD_ROOM": "x", "OTHER": "1", "RAMET_PORT": "1"})
    assert capsys.readouterr().err == "warning: RAMET_PAGESIZE is not an option; did you mean RAMET_PAGE_SIZE?\n"


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_old_spellings_set_the_same_option(alias: str, name: str) -> None:
    option = BY_NAME[name]
    values = [] if option.default is False else ["63"]
    assert parse(["--" + alias.replace("_", "-"), *values], {}) == parse([option.flag, *values], {}) != Args()


def test_printed_config_gives_the_same_args_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--port", "1003", "--max-total-tokens", "4096", "--disable-radix-cache", "--served-model-name", 'a: "b" #']
    file = tmp_path / "c.yaml"
    file.write_text(printed(capsys, argv, {"RAMET_DTYPE": "float32"}))
    assert parse(["--config", str(file)], {}) == parse(argv, {"RAMET_DTYPE": "float32"})


def test_printed_config_tells_the_origin_of_what_was_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("max_wait_s: 3\n")
    lines = printed(capsys, ["--port", "1", "--config", str(file)], {"RAMET_HOST": "::1"}).splitlines()
    assert "port: 1  # from --port" in lines
    assert 'host: "::1"  # from RAMET_HOST' in lines
    assert f"max_wait_s: 3.0  # from {file}: max_wait_s" in lines
    assert "page_size: 1" in lines


@pytest.mark.parametrize("name", ["api_key", "admin_api_key", "ssl_keyfile_password"])
def test_a_key_is_never_printed(capsys: pytest.CaptureFixture[str], name: str) -> None:
    variable = f"RAMET_{name.upper()}"
    text = printed(capsys, [], {variable: "sesame"})
    assert "sesame" not in text and f"# {name}: hidden, from {variable}" in text


def test_a_list_is_words_with_commas_or_a_list_of_yaml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("allowed_hosts: [a.example, .b.example]\n")
    assert parse(["--config", str(file)], {}).serve.allowed_hosts == ("a.example", ".b.example")
    argv = ["--allowed-hosts", " a.example, .b.example,"]
    assert parse(argv, {}).serve.allowed_hosts == ("a.example", ".b.example")
    assert parse(["--config", str(file), "--allowed-hosts", ""], {}).serve.allowed_hosts == ()
    file.write_text(printed(capsys, argv, {}))
    assert parse(["--config", str(file)], {}) == parse(argv, {})
    file.write_text("allowed_hosts: [1]\n")
    with pytest.raises(ConfigError, match=r"allowed_hosts is \[1\], must be words separated by commas"):
        parse(["--config", str(file)], {})


@pytest.mark.parametrize(
    "words",
    ["http://x/path", "http://x/", "x.example", "null", "http://", "http://*.example", "http://a b", "http://u@x",
     "http://x:port", "http://x?q", "https://a.example,chat"],
)  # fmt: skip
def test_a_malformed_origin_is_refused_at_the_start(words: str) -> None:
    args = parse(["--allowed-origins", words], {})
    with pytest.raises(ConfigError, match=re.escape(f"--allowed-origins has {words.split(',')[-1]!r}")):
        resolve(args)


@pytest.mark.parametrize("word", ["http://x", "x:80", "a b", "a.*.b", "*x", ".", "x/y", "[::1]:80"])
def test_a_malformed_host_is_refused_at_the_start(word: str) -> None:
    args = parse(["--allowed-hosts", word], {})
    with pytest.raises(ConfigError, match=re.escape(f"--allowed-hosts has {word!r}")):
        resolve(args)


@pytest.mark.parametrize("word", ["*", "https://a.example", "HTTP://[::1]:80", "chrome-extension://abc", "http://x."])
def test_an_origin_is_taken(word: str) -> None:
    resolve(parse(["--allowed-origins", word], {}))


@pytest.mark.parametrize("word", ["*", "a", "a.example.", ".a.example", "*.a.example", "10.0.0.1", "[::1]", "a_b"])
def test_a_host_is_taken(word: str) -> None:
    resolve(parse(["--allowed-hosts", word], {}))


def test_help_shows_every_option_with_its_bounds() -> None:
    text = serve_parser("ramet serve").format_help()
    assert [o.flag for o in OPTIONS if o.flag not in text] == []
    assert "an integer in [0, 65535]" in " ".join(text.split())


@given(st.sampled_from(OPTIONS), st.text(max_size=12))
def test_any_text_for_any_option_is_a_value_or_one_clear_error(option: Option, text: str) -> None:
    flag = option.flag
    try:
        args = parse([f"{flag}={text}"], {})
    except ConfigError as error:
        assert flag in str(error)
    else:
        assert msgspec.convert(msgspec.to_builtins(args), Args) == args


class TestRun:
    """`ramet run` has the sampling parameters as flags."""

    def params(self, *argv: str) -> dict[str, object]:
        return run.sampling_params(run.make_parser().parse_args(["hello", *argv]))

    def test_every_sampling_parameter_is_a_flag_and_none_collides(self) -> None:
        names = {o.name for o in options_of(SamplingParams)} - {"n"}
        assert {o.name for o in run.SAMPLING} == names
        assert not names & set(BY_NAME)

    def test_only_what_was_given_is_sent(self) -> None:
        assert self.params() == {}
        given = self.params("--temperature", "0", "--max-new-tokens", "5", "--stop", "a", "--stop", "b", "--ignore-eos")
        assert given == {"temperature": 0.0, "max_new_tokens": 5, "stop": ["a", "b"], "ignore_eos": True}

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["--top-p", "3"], "--top-p is 3.0, must be in (0, 1]"),
            (["--top-k", "a"], "--top-k is 'a', must be an integer, -1 (off) or in [1, 1073741824]"),
            (["--stop-token-ids", "-4"], "--stop-token-ids[0] is -4, must be a token id of the vocabulary, >= 0"),
        ],
    )
    def test_a_wrong_parameter_is_named_by_its_flag(self, argv: list[str], message: str) -> None:
        with pytest.raises(ConfigError) as error:
            self.params(*argv)
        assert str(error.value) == message

    def test_what_is_new_of_each_reply_is_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run.write_through(iter([{"text": "a"}, {"text": "a"}, {"text": "a bc"}])) == {"text": "a bc"}
        assert capsys.readouterr().out == "a bc\n"


def test_a_variable_may_have_another_servers_name_for_the_option() -> None:
    assert parse([], {"RAMET_MAX_MODEL_LEN": "600"}).model.context_length == 600
    assert parse([], {"RAMET_MAX_MODEL_LEN": "600", "RAMET_CONTEXT_LENGTH": "500"}).model.context_length == 500
    with pytest.raises(ConfigError, match="RAMET_MAX_NUM_SEQS is 'x'"):
        parse([], {"RAMET_MAX_NUM_SEQS": "x"})


def test_memory_for_bodies_holds_one_body() -> None:
    wanted = "--max-bodies-mb is 16, must be at least --max-body-mb, which is 32: "
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        resolve(make_args(max_bodies_mb=16))
    for max_body_mb, held in ((32, 256), (1, 256), (512, 512)):
        assert resolve(make_args(max_body_mb=max_body_mb)).max_bodies_bytes == held << 20
