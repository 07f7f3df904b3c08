from __future__ import annotations

import pytest

from gateway.errors import SecretsKeyError
from gateway.projects.environment import SecretBox, key_id

OLD, NEW = "o" * 32, "n" * 32


def box(*keys: str) -> SecretBox:
    return SecretBox(lambda: keys)


def test_a_secret_opens_with_the_key_that_sealed_it_and_shows_nothing_of_itself() -> None:
    sealed = box(OLD).seal("shop", "API_KEY", "topsecret")
    assert box(OLD).open("shop", "API_KEY", sealed) == "topsecret"
    assert "topsecret" not in sealed
    assert OLD not in sealed
    assert box(OLD).seal("shop", "API_KEY", "topsecret") != sealed


def test_the_first_key_seals_and_all_open() -> None:
    sealed = box(OLD).seal("shop", "API_KEY", "topsecret")
    assert box(NEW, OLD).open("shop", "API_KEY", sealed) == "topsecret"
    assert not box(NEW, OLD).is_current(sealed)
    anew = box(NEW, OLD).seal("shop", "API_KEY", "topsecret")
    assert box(NEW).is_current(anew)
    assert box(NEW).open("shop", "API_KEY", anew) == "topsecret"


def test_without_its_key_the_error_names_key_and_variable_and_not_the_value() -> None:
    sealed = box(OLD).seal("shop", "API_KEY", "topsecret")
    with pytest.raises(SecretsKeyError, match=rf"API_KEY of project 'shop'.*{key_id(OLD)}.*SECRETS_KEY"):
        box(NEW).open("shop", "API_KEY", sealed)


@pytest.mark.parametrize(("project", "name"), [("rival", "API_KEY"), ("shop", "OTHER")])
def test_a_copy_of_it_opens_for_no_other_project_and_under_no_other_name(project: str, name: str) -> None:
    sealed = box(OLD).seal("shop", "API_KEY", "topsecret")
    with pytest.raises(SecretsKeyError, match="changed in the database"):
        box(OLD).open(project, name, sealed)


def test_what_was_changed_does_not_open() -> None:
    sealed = box(OLD).seal("shop", "API_KEY", "topsecret")
    changed = sealed[:-4] + ("AAAA" if sealed[-4:] != "AAAA" else "BBBB")
    with pytest.raises(SecretsKeyError):
        box(OLD).open("shop", "API_KEY", changed)
