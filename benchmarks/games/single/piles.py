"""Piles: play cards on two rising and two falling piles; choose the card, then the pile.

A card may also go 10 against a pile's direction: exactly 10 below the top of a rising pile, or 10
above that of a falling pile. The width of masks varies: the hand shrinks once the deck is empty.
"""

import random
from dataclasses import dataclass

from entity_env import Game, Obs, SelectEntity
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Player:
    cards_left: int


@dataclass(eq=False)
class Card:
    value: int


@dataclass
class Held:
    value: int


@dataclass(eq=False)
class Pile:
    top: int
    is_rising: bool

    def gap(self, value: int) -> int:
        return value - self.top if self.is_rising else self.top - value

    def takes(self, value: int) -> bool:
        return self.gap(value) > 0 or self.gap(value) == -10


PICK, PLACE = SelectEntity(Card), SelectEntity(Pile)


def play(agent: Agent, *, seed: int, num_cards: int = 100, hand_size: int = 7) -> None:
    deck, score = list(range(1, num_cards + 1)), 0
    random.Random(seed).shuffle(deck)
    hand = [Card(deck.pop()) for _ in range(hand_size)]
    piles = [Pile(0, True), Pile(0, True), Pile(num_cards + 1, False), Pile(num_cards + 1, False)]
    while True:
        fits = [any(pile.takes(card.value) for pile in piles) for card in hand]
        if not any(fits):
            break
        obs = Obs(score).actors([Player(len(deck))], PICK).entities(hand).entities(piles)
        picked = agent.act(obs.mask(PICK, [fits]), PICK)
        if picked is None or (card := picked[0]) is None:
            return
        hand.remove(card)
        obs = Obs(score).actors([Held(card.value)], PLACE).entities(hand).entities(piles)
        obs.mask(PLACE, [[pile.takes(card.value) for pile in piles]])
        placed = agent.act(obs.entities([Player(len(deck))]), PLACE)
        if placed is None or (pile := placed[0]) is None:
            return
        pile.top = card.value
        score += 1
        if deck:
            hand.append(Card(deck.pop()))
    agent.game_over(Obs(score))


piles = Game(play, entities=(Player, Card, Held, Pile), actions=(PICK, PLACE), name="piles")


class Scripted(ScriptedAgent):
    """Plays the card that advances its pile least."""

    def choose(self, obs: Obs, *actions: object) -> object:
        places: list[Pile] = obs.of_class(Pile)
        if held := obs.of_class(Held):
            return [min(obs.allowed(PLACE)[0], key=lambda pile: pile.gap(held[0].value))]

        def least(card: Card) -> int:
            return min(pile.gap(card.value) for pile in places if pile.takes(card.value))

        return [min(obs.allowed(PICK)[0], key=least)]
