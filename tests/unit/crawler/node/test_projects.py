from __future__ import annotations

import pytest

from crawler.node.projects import canonical


@pytest.mark.parametrize("name", ["default", "DEFAULT", "DiscoveryBot", "discoverybot"])
def test_our_own_project_has_two_names(name: str) -> None:
    assert canonical(name, ["default", "shop"]) == "default"


def test_a_project_is_found_whatever_the_case_but_the_exact_name_wins() -> None:
    assert canonical("SHOP", ["default", "Shop"]) == "Shop"
    assert canonical("shop", ["Shop", "shop"]) == "shop"
    assert canonical("SHOP", ["shop", "Shop"]) == canonical("SHOP", ["Shop", "shop"])


def test_an_unknown_project_keeps_its_name() -> None:
    assert canonical("../X", ["default"]) == "../X"
