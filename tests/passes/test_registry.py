import pytest

from helpers.passes import registry
from helpers.passes.folder import Pass, PassResult


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(registry, "_PASSES", {})

    @registry.register
    class Everywhere(Pass):
        name = "everywhere"

        def run(self, graph_module):
            return PassResult()

    @registry.register
    class Other(Everywhere):
        name = "other"

    return Everywhere, Other


def test_look_up_by_name_gives_a_fresh_pass(known):
    one, other = registry.get("everywhere"), registry.get("everywhere")
    assert type(one) is known[0] and one is not other
    assert repr(one) == "<pass everywhere>"


def test_unknown_names_are_answered_with_the_near_matches(known):
    with pytest.raises(registry.UnknownPass, match=r"'everywere': did you mean everywhere\?"):
        registry.get("everywere")
    with pytest.raises(registry.UnknownPass, match="'xyz': there are everywhere, other"):
        registry.get("xyz")


def test_bad_registrations(known):
    class NoName(Pass):
        pass

    class Taken(Pass):
        name = "other"

    for cls, message in [
        (NoName, "no name"),
        (Taken, "wants the name"),
        (dict, "not a Pass"),
    ]:
        with pytest.raises(registry.BadRegistration, match=message):
            registry.register(cls)
    assert [*registry._PASSES] == ["everywhere", "other"]
