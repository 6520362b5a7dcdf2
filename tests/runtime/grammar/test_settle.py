"""What rules say of each other is found in as many looks as it takes, whatever their order."""

import random

import pytest

from ramet.runtime.grammar.tree import EMPTY, Alt, Ref, Rules, settle

NUM = 2000


def chain(order: str) -> Rules:
    rules: Rules = {f"r{i}": Ref(f"r{i + 1}") if i + 1 < NUM else EMPTY for i in range(NUM)}
    names = {"forwards": [*rules], "backwards": [*reversed(rules)], "mixed": random.Random(0).sample([*rules], NUM)}
    return {name: rules[name] for name in names[order]}


@pytest.mark.parametrize("order", ["forwards", "backwards", "mixed"])
def test_a_chain_takes_two_looks_at_each_rule(order: str):
    rules, known, looks = chain(order), set[str](), list[str]()

    def changes(name: str) -> bool:
        looks.append(name)
        node = rules[name]
        if name in known or (isinstance(node, Ref) and node.name not in known):
            return False
        known.add(name)
        return True

    settle(rules, changes)
    assert known == rules.keys() and len(looks) <= 2 * NUM


def test_rules_that_refer_to_each_other_are_looked_at_until_none_changes():
    rules: Rules = {"a": Alt((Ref("b"), EMPTY)), "b": Ref("c"), "c": Alt((Ref("a"), Ref("c")))}
    depth = dict.fromkeys(rules, 0)

    def changes(name: str) -> bool:
        node = rules[name]
        options = node.options if isinstance(node, Alt) else (node,)
        found = min(5, 1 + max(depth[each.name] for each in options if isinstance(each, Ref)))
        before, depth[name] = depth[name], found
        return found != before

    settle(rules, changes)
    assert depth == dict.fromkeys(rules, 5)
