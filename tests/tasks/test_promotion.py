"""Promotion on a report's word."""

from types import SimpleNamespace

from tasks import promotion


def test_a_verdict_about_another_champion_moves_nothing(settings, monkeypatch, caplog):
    moved = []
    monkeypatch.setattr(promotion, "_move", lambda *args, **named: moved.append(args))
    registry = SimpleNamespace(aliases=lambda: {"champion": "5", "challenger": "2"})
    monkeypatch.setattr(promotion, "Registry", lambda settings: registry)
    report = {
        "id": "r",
        "decision": "promote",
        "reasons": ["better"],
        "champion": "1",
        "challenger": "2",
        "new": True,
    }
    result = promotion.promote(settings, report)
    assert result == {"promoted": False, "champion": "5", "previous": "5"}
    assert moved == []
    promotion.promote(settings, {**report, "champion": "5"})
    assert len(moved) == 1
