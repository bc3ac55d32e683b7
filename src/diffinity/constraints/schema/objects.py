"""Objects: an automaton that reads properties in order, linear in their number.

The machine is first laid out over whole properties. A state has the next possible name, the number of properties
so far (if it matters), the names so far that others depend on, and the schemas that must fail and have not failed
yet. Then each step is replaced by the bytes of a name and of its value.

With `order="any"` a state is the set of remembered names so far. A small object remembers all names. A larger open
object remembers only names that something depends on (above all, the required names); the others may occur
anywhere. A value is copied once for each set in which its name may occur. If that makes too many states, arrays
and objects under undeclared names wait until all required names have occurred, or the required names keep their
order, or all names do.

No name occurs twice. Declared names occur in order. A finite automaton cannot remember all undeclared names, so
these occur in strictly increasing order of a *bucket*, the range of their first distinguishing byte. With
`open=True` they are free, unless the schema counts properties or must fail at one: a repeated name then satisfies
its schemas both times, and readers keep the last value. The same holds for names of an open object in any order
that are not remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal as OneOf
from typing import NamedTuple

from diffinity.constraints.dfa import ByteDFA
from diffinity.constraints.nfa import NfaBuilder
from diffinity.constraints.schema.ecma import searched
from diffinity.constraints.schema.keywords import ObjectPart
from diffinity.constraints.schema.literals import Literal
from diffinity.constraints.schema.name_tries import NameTries
from diffinity.constraints.schema.names import NameClass, classes_by_pattern, in_buckets
from diffinity.constraints.schema.spelling import spell_string, spelling, utf8
from diffinity.constraints.schema.values import Values

# First bytes at which a new bucket begins, by the size of the values that each bucket copies.
_CUTS = ((60, b"AMaeilpt"), (200, b"ajr"), (2000, b"n"))  # for larger values there is one bucket


# The maximum number of states of an open object that remembers all its names, so that none occurs twice.
_REMEMBER_ALL = 1_500
# The maximum number of remembered names: with more, the layout of the sets alone takes too long.
_MOST_REMEMBERED = 12

OrderKept = OneOf["none", "undeclared", "required", "declared"]


class _State(NamedTuple):
    """The state of the machine between two properties."""

    place: int  # names before this one are decided
    seen: frozenset[int] = frozenset()  # names so far, if they may occur in any order
    counted: int = 0  # names so far, up to the limit that matters
    present: frozenset[str] = frozenset()  # names that something still depends on
    undecided: frozenset[int] = frozenset()  # schemas that must fail and have not failed yet
    bucket: int = 0


class ObjectBuilder:
    """Builds the automaton of the objects that satisfy `holding` and none of `failing`."""

    def __init__(
        self,
        values: Values,
        holding: Sequence[ObjectPart],
        failing: Sequence[ObjectPart],
        order: Sequence[str],
        is_open: bool,
    ) -> None:
        self.values = values
        self.holding = holding
        self.failing = failing
        self.open = is_open
        self._certain_failures: dict[tuple[int, str], bool] = {}
        self.names = self._ordered_names(order)
        self.position = {name: i for i, name in enumerate(self.names)}
        self.required = {name for part in holding for name in part.required}
        self.required_places = {self.position[name] for name in self.required}
        self.declares_nothing = not any(part.declares for part in holding)
        self.permitted = {name: self._is_permitted(name) for name in self.names}
        self.base = {name: self._base(name) for name in self.names}
        self.nameable = {name: self._may_be_named(name) for name in self.names}
        self.must_be_absent: set[str] = set()
        self.undecided = [j for j, part in enumerate(failing) if not self._fails_anyway(j, part)]
        values.limit_states(
            2 ** min(len(self.undecided), 40) * (len(self.names) + 1), "telling alternatives apart"
        )
        self.classes = self._name_classes()
        self.depends = [clause for part in holding for clause in part.dependent]
        self.breaks = [(j, a, b) for j in self.undecided for a, b in failing[j].dependent]
        self.due = _by_last_place(self.depends, self.position)
        self.due_breaks = _by_last_place([clause[1:] for clause in self.breaks], self.position)
        self.last_use: dict[str, int] = {}
        for a, b in (*self.depends, *((a, b) for _, a, b in self.breaks)):
            for name in (a, b):
                last = max(self.position[a], self.position[b])
                self.last_use[name] = max(last, self.last_use.get(name, last))
        self._ends: dict[_State, bool] = {}
        self.linked = {name for a, b in (*self.depends, *((a, b) for _, a, b in self.breaks)) for name in (a, b)}
        self.counts = self._count_limit()
        self.cuts = self._bucket_cuts()
        self.remembered = frozenset(range(len(self.names)))
        self.order = self._affordable_order() if values.options.order == "any" else "declared"
        values.note_order(self.order)

    def _affordable_order(self) -> OrderKept:
        """The names that must keep an order so that the object stays within its states; sets `remembered`."""
        everywhere = frozenset(range(len(self.names)))
        sizes = {place: self._written_size(name) for place, name in enumerate(self.names)}
        values = [self._value(self._base_of_class(names)) for names in self.classes]
        undeclared_size = sum(map(self.values.least_size, values))
        flat_size = sum(self.values.least_size(self._flat(value)) for value in values)
        versions = (self.counts + 1) * 2 ** len(self.undecided) * (1 if self.cuts is None else len(self.cuts) + 2)
        max_states = self.values.order_states

        def cost(remembered: frozenset[int], early: int) -> int:
            """The states of all copies; `early` is for undeclared names before all required names occurred."""
            sets = 2 ** len(remembered)
            once = sum(sizes[place] for place in remembered)
            again = sum(sizes.values()) - once
            late = sets // 2 ** len(self.required)
            return versions * (sets * once // 2 + sets * again + (sets - late) * early + late * undeclared_size)

        if len(everywhere) <= _MOST_REMEMBERED and cost(everywhere, undeclared_size) <= (
            _REMEMBER_ALL if self.open else max_states
        ):
            return "none"
        if not self.open:
            return "declared"
        self.remembered = needed = self._depended_on()
        declared = sum(sizes.values()) + undeclared_size
        if len(needed) <= _MOST_REMEMBERED:
            if cost(needed, undeclared_size) <= max_states // 10:
                return "none"
            if cost(needed, flat_size) <= max(max_states, declared + declared // 10):
                return "undeclared" if self.required else "none"
        in_order = (len(needed) + 1) * declared
        return (
            "required"
            if needed == self.required_places and versions == 1 and in_order <= max_states
            else "declared"
        )

    def _flat(self, value: ByteDFA) -> ByteDFA:
        """The small values that an undeclared name may have before all required names have occurred."""
        return self.values.flat_any if value is self.values.assembly.any else value

    def _written_size(self, name: str) -> int:
        """The number of states of a name and its value."""
        if not self._possible(name) or name in self.must_be_absent:
            return 0
        return self.values.least_size(self._value(self.base[name])) + len(name) + 8

    def _depended_on(self) -> frozenset[int]:
        """The names that must be remembered if other names may occur twice; all names if none may.

        A repeated name satisfies its schemas both times, and readers keep the last value. So no schema may fail by
        such a name, and a repetition must not help a count.
        """
        if any(part.min_properties > len(self.required) + 1 for part in self.holding) or any(
            self.failing[j].max_properties is not None for j in self.undecided
        ):
            return frozenset(range(len(self.names)))
        names = self.required | self.linked
        for part in (self.failing[j] for j in self.undecided):
            names |= set(part.required)
            names |= {name for name in self.names if part.names is not None or self._literals_of_name(part, name)}
        return frozenset(self.position[name] for name in names)

    def build(self) -> ByteDFA:
        """The automaton, empty if there is no such object."""
        return self._emit(_State(0, undecided=frozenset(self.undecided)))

    # ---- names

    def _ordered_names(self, order: Sequence[str]) -> list[str]:
        names: dict[str, None] = {}
        for part in (*self.holding, *self.failing):
            names |= dict.fromkeys(part.properties)
            names |= dict.fromkeys(part.required)
            names |= dict.fromkeys(name for clause in part.dependent for name in clause)
        first = set(order)
        return [*(name for name in order if name in names), *(name for name in names if name not in first)]

    def _may_be_named(self, name: str) -> bool:
        key = spell_string(name)
        rules = [part.names for part in self.holding if part.names is not None]
        return all(self.values.below((Literal(rule),)).accepts(key) for rule in rules)

    def _literals_of_name(self, part: ObjectPart, name: str) -> tuple[Literal, ...]:
        """The literals that one schema requires of the value of a declared name."""
        known = name in part.properties
        nodes = [part.properties[name]] if known else []
        for pattern, node in part.patterns:
            surely = searched(pattern).accepts(utf8(name))
            known = known or surely
            # A name may match only in some engines. Then the node applies to schemas that must hold, and not to
            # schemas that must fail.
            if surely or (
                any(part is x for x in self.holding) and searched(pattern, wide=True).accepts(utf8(name))
            ):
                nodes.append(node)
        if not known:
            nodes.append(part.additional)
        return tuple(Literal(node) for node in nodes if node is not None)

    def _literals_of_class(self, part: ObjectPart, names: NameClass) -> tuple[Literal, ...]:
        """The literals that one schema requires of the values of undeclared names."""
        matched = [node for pattern, node in part.patterns if pattern in names.patterns]
        nodes = matched if matched else [part.additional]
        return tuple(Literal(node) for node in nodes if node is not None)

    def _base_of_class(self, names: NameClass) -> tuple[Literal, ...]:
        return tuple(literal for part in self.holding for literal in self._literals_of_class(part, names))

    def _is_permitted(self, name: str) -> bool:
        """Whether a declared name may occur although nothing requires it."""
        if self.open or self.declares_nothing:
            return True
        return name in self.required or any(
            name in part.properties
            or part.describes_additional
            or name in part.dependent_names
            or any(searched(pattern).accepts(utf8(name)) for pattern, _ in part.patterns)
            for part in self.holding
        )

    def _name_classes(self) -> list[NameClass]:
        allows_undeclared = (
            self.open
            or self.declares_nothing
            or any(part.patterns or part.describes_additional for part in self.holding)
        )
        if not allows_undeclared:
            return []
        patterns = tuple(dict.fromkeys(p for part in (*self.holding, *self.failing) for p, _ in part.patterns))
        classes = classes_by_pattern(tuple(self.names), patterns, self.open)
        for part in self.holding:
            if part.names is not None:
                valid = self.values.below((Literal(part.names),))
                classes = [replace(name_class, keys=name_class.keys.intersection(valid)) for name_class in classes]
        for j, part in enumerate(self.failing):
            broken = self._broken_names(part)
            if broken is not None:
                outside = [
                    NameClass(old.keys.intersection(broken), old.patterns, old.outside | {j}) for old in classes
                ]
                inside = [replace(old, keys=old.keys.difference(broken)) for old in classes]
                classes = [*outside, *inside]
        return [
            name_class
            for name_class in classes
            if not name_class.keys.is_empty and self._class_permitted(name_class)
        ]

    def _class_permitted(self, names: NameClass) -> bool:
        if self.open or self.declares_nothing or names.outside:
            return True
        return any(
            part.describes_additional or any(pattern in names.patterns for pattern, _ in part.patterns)
            for part in self.holding
        )

    # ---- schemas that must fail

    def _fails_anyway(self, j: int, part: ObjectPart) -> bool:
        for name in part.required:
            if name not in self.required and not (self.permitted[name] and self._possible(name)):
                self.must_be_absent.add(name)  # even if the name could make another schema fail that must fail
                return True
        # Names with listed values come first: they usually decide, and comparing them costs less.
        names = sorted(self.required, key=lambda name: (not self._is_listed(part, name), self.position[name]))
        return any(self._fails_if_present(j, name) for name in names)

    def _is_listed(self, part: ObjectPart, name: str) -> bool:
        """Whether a schema lists the values of a declared name."""
        declared = part.properties.get(name)
        return declared is not None and any(declared.has(keyword) for keyword in ("const", "enum"))

    def _possible(self, name: str) -> bool:
        return self.nameable[name] and not self._value(self.base[name]).is_empty

    def _base(self, name: str) -> tuple[Literal, ...]:
        return tuple(literal for part in self.holding for literal in self._literals_of_name(part, name))

    def _fails_if_present(self, j: int, name: str) -> bool:
        """Whether every possible value of this name here makes schema j fail.

        This checks that the negated schema allows all values, not that the schema allows none: the compiled
        language may be narrower than the schema, which would make the second check wrong.
        """
        key = (j, name)
        if key not in self._certain_failures:
            part, base = self.failing[j], self.base[name]
            broken = self._broken_names(part)
            fails = broken is not None and broken.accepts(spell_string(name))
            for literal in self._literals_of_name(part, name):
                fails = fails or literal.node.raw is False
                fails = fails or (bool(base) and self._value((*base, literal.negated())) == self._value(base))
            self._certain_failures[key] = fails
        return self._certain_failures[key]

    def _broken_names(self, part: ObjectPart) -> ByteDFA | None:
        """The names that violate a schema's `propertyNames` for certain."""
        return None if part.names is None else self.values.below((Literal(part.names, holds=False),))

    def _value(self, literals: tuple[Literal, ...]) -> ByteDFA:
        return self.values.below(tuple(dict.fromkeys(literals)))

    # ---- counting and depending

    def _count_limit(self) -> int:
        """The limit for counting properties: 0 if the number does not matter."""
        limits = [0]
        for part in self.holding:
            if part.min_properties > len(self.required):
                limits.append(part.min_properties)
            if part.max_properties is not None and (self.classes or part.max_properties < len(self.names)):
                limits.append(part.max_properties + 1)
        for j in self.undecided:
            part = self.failing[j]
            limits += [part.min_properties, 0 if part.max_properties is None else part.max_properties + 1]
        self.values.limit_states(max(limits) * 8, "counting properties")
        return max(limits)

    def _bucket_cuts(self) -> bytes | None:
        """The first bytes of the buckets of undeclared names; None if these names may occur freely."""
        at_names = any(
            self._literals_of_class(self.failing[j], names) for j in self.undecided for names in self.classes
        )
        counted = any(part.min_properties > len(self.required) + 1 for part in self.holding) or any(
            (self.failing[j].max_properties or 0) > 0 for j in self.undecided
        )
        if self.open and not at_names and not counted:
            return None
        size = 0
        for names in self.classes:
            size += self.values.assembly.size(self._value(self._base_of_class(names)))
        needed = max((part.min_properties for part in self.holding), default=0) - len(self.required)
        if needed > len(_CUTS[0][1]):
            return bytes(range(0x23, min(0x23 + needed, 0x7F)))
        return next((cuts for max_size, cuts in _CUTS if size <= max_size or needed > len(cuts)), b"")

    def _decided(self, state: _State) -> _State | None:
        """The state after names up to `place` are decided: dependencies among them hold or have failed."""
        if not self.depends and not self.breaks:
            return state
        last = state.place - 1

        def broken(trigger: str, other: str) -> bool:
            return trigger in state.present and other not in state.present

        if any(broken(*self.depends[i]) for i in self.due.get(last, ())):
            return None
        failed = {self.breaks[i][0] for i in self.due_breaks.get(last, ()) if broken(*self.breaks[i][1:])}
        live = frozenset(name for name in state.present if self.last_use[name] > last)
        return state._replace(present=live, undecided=state.undecided - failed)

    def _absent(self, state: _State, place: int) -> _State | None:
        """The state after the name at `place` was left out."""
        name = self.names[place]
        if name in self.required:
            return None
        failed = {j for j in state.undecided if name in self.failing[j].required}
        after = _State(place + 1, state.seen, state.counted, state.present, state.undecided - failed, state.bucket)
        return self._decided(after)

    def _present(self, state: _State, place: int) -> Iterator[tuple[ByteDFA, _State]]:
        """The possible values of the name at `place`, each with the state after it."""
        name = self.names[place]
        if not self.nameable[name] or name in self.must_be_absent:
            return
        base = self.base[name]
        free = frozenset(j for j in state.undecided if self._fails_if_present(j, name))
        offers = {j: self._literals_of_name(self.failing[j], name) for j in state.undecided - free}
        for chosen, failed in _choices(offers):
            self.values.spend(4, "composing an object")
            if not (self.permitted[name] or chosen or free):
                continue
            value = self._value((*base, *chosen))
            if value.is_empty:
                continue
            after = self._counted(state._replace(undecided=state.undecided - free - failed))
            if after is None:
                continue
            after = after._replace(present=after.present | ({name} & self.linked))
            if self.order != "declared":
                yield value, after._replace(seen=after.seen | {place}) if place in self.remembered else after
            elif (decided := self._decided(after._replace(place=place + 1))) is not None:
                yield value, decided

    def _undeclared(self, state: _State) -> Iterator[tuple[ByteDFA, ByteDFA, _State]]:
        """Undeclared names and their values, each with the state after them."""
        early = self.order == "undeclared" and not self.required_places <= state.seen
        for names in self.classes:
            base = self._base_of_class(names)
            free = state.undecided & names.outside
            offers = {j: self._literals_of_class(self.failing[j], names) for j in state.undecided - free}
            for chosen, failed in _choices(offers):
                self.values.spend(4, "composing an object")
                value = self._value((*base, *chosen))
                after = self._counted(state._replace(undecided=state.undecided - free - failed))
                if value.is_empty or after is None:
                    continue
                value = self._flat(value) if early else value
                for bucket, keys in self._bucketed(names.keys, state.bucket):
                    yield keys, value, after._replace(bucket=bucket)

    def _bucketed(self, keys: ByteDFA, first: int) -> Iterator[tuple[int, ByteDFA]]:
        """The names by bucket, from bucket `first` on, each with the first bucket of the next name."""
        if self.cuts is None:
            yield 0, keys
            return
        for bucket, within in enumerate(in_buckets(keys, self.cuts)):
            if bucket >= first and not within.is_empty:
                yield bucket + 1, within

    def _counted(self, state: _State) -> _State | None:
        count = min(state.counted + 1, self.counts)
        if any(part.max_properties is not None and count > part.max_properties for part in self.holding):
            return None
        return state._replace(counted=count)

    def _may_end(self, state: _State) -> bool:
        """Whether the object may be closed here, with all remaining names absent."""
        if self.order != "declared":
            if not self.required_places <= state.seen:
                return False
            if not (self.depends or self.breaks or state.undecided):
                return self._ends_well(state)
        passed: list[_State] = []
        verdict: bool | None = None
        after: _State | None = state
        while after is not None and (verdict := self._ends.get(after)) is None and after.place < len(self.names):
            if self.order == "declared":  # in any order, these states are not reached again
                passed.append(after)
            if after.place in after.seen:
                after = self._decided(after._replace(place=after.place + 1))
            else:
                after = self._absent(after, after.place)
        if verdict is None:
            verdict = after is not None and self._ends_well(after)
        self._ends.update(dict.fromkeys(passed, verdict))
        return verdict

    def _ends_well(self, after: _State) -> bool:
        """Whether an object that ends in this state satisfies all counts and all schemas that must fail."""
        counted = [part for part in self.holding if part.min_properties > len(self.required)]
        if any(after.counted < part.min_properties for part in counted):
            return False
        return all(_miscounts(self.failing[j], after.counted) for j in after.undecided)

    # ---- bytes

    def _emit(self, start: _State) -> ByteDFA:
        marks = spelling(self.values.options)
        nfa = NfaBuilder()
        entry, end = nfa.state(), nfa.state()
        any_order = self.order != "declared"
        before: dict[_State, int] = {}  # NFA states before a name
        behind: dict[_State, int] = {}  # NFA states after a value
        joints: dict[tuple[_State, ByteDFA], int] = {}
        pending: list[_State] = []

        def before_node(state: _State) -> int:
            if state not in before:
                before[state] = nfa.state()
                pending.append(state)
            return before[state]

        def behind_node(state: _State) -> int:
            if state not in behind:
                behind[state] = node = nfa.state()
                if self._more_may_come(state):
                    nfa.embed(marks.comma, node, before_node(state))
                if self._may_end(state):
                    nfa.embed(marks.close_object, node, end)
            return behind[state]

        def joint(state: _State, value: ByteDFA) -> int:
            """The state after a name, before the colon and the value."""
            if (state, value) not in joints:
                joints[state, value] = node = nfa.state()
                self.values.limit_states(nfa.n_states + value.n_states, "composing an object")
                middle = nfa.state()
                nfa.embed(marks.colon, node, middle)
                self.values.assembly.embed(nfa, value, middle, behind_node(state))
            return joints[state, value]

        opened = nfa.state()
        nfa.embed(marks.open_object, entry, opened)
        if self._may_end(start):
            nfa.literal(b"}", opened, end)
        nfa.epsilon(opened, before_node(start))
        tries: dict[_State, int] = {}  # the possible names, with their continuations
        names = NameTries()
        while pending:
            # In the declared order, the names after a state are its own name and the names after skipping it.
            chain = [pending.pop()]
            while not any_order and (skipped := self._skipped(chain[-1])) is not None and skipped not in tries:
                chain.append(skipped)
            for state in reversed(chain):
                if state in tries:
                    continue
                self.values.spend(20 + len(self.classes) + 8 * any_order * len(self.names), "composing an object")
                skipped = None if any_order else self._skipped(state)
                trie = NameTries.EMPTY if skipped is None else tries[skipped]
                for place in self._next_places(state):
                    for value, after in self._present(state, place):
                        trie = names.insert(trie, spell_string(self.names[place]), joint(after, value))
                if self._undeclared_may_come(state):
                    for keys, value, after in self._undeclared(state):
                        names_start = nfa.state()
                        nfa.embed(keys, names_start, joint(after, value))
                        trie = names.beside(trie, names_start)
                tries[state] = trie
        names.emit(nfa, [(node, tries[state]) for state, node in before.items()])
        return nfa.build(entry, [end])

    def _skipped(self, state: _State) -> _State | None:
        """The state after leaving out the next possible name; None if it is required, or there is none."""
        return self._absent(state, state.place) if state.place < len(self.names) else None

    def _next_places(self, state: _State) -> list[int]:
        """The possible next names: the next name in order, or any name that has not occurred yet."""
        if self.order != "declared":
            left = [i for i in range(len(self.names)) if i not in state.seen]
            if self.order == "required":
                waiting = self.required_places - state.seen
                return [i for i in left if i not in waiting or i == min(waiting)]
            return left
        return [state.place] if state.place < len(self.names) else []

    def _undeclared_may_come(self, state: _State) -> bool:
        """Whether undeclared names may occur now."""
        if self.order == "declared":
            return state.place == len(self.names)
        return self.order != "required" or self.required_places <= state.seen

    def _more_may_come(self, state: _State) -> bool:
        return bool(self.classes) or state.place < len(self.names)


def _by_last_place(clauses: Sequence[tuple[str, str]], position: dict[str, int]) -> dict[int, list[int]]:
    """The clauses about two names that are decided with the name at each place."""
    due: dict[int, list[int]] = {}
    for i, names in enumerate(clauses):
        due.setdefault(max(position[name] for name in names), []).append(i)
    return due


def _miscounts(part: ObjectPart, count: int) -> bool:
    """Whether a schema fails by the number of properties alone."""
    return count < part.min_properties or (part.max_properties is not None and count > part.max_properties)


def _choices(offers: dict[int, tuple[Literal, ...]]) -> Iterator[tuple[tuple[Literal, ...], frozenset[int]]]:
    """All choices of schemas that fail here, each by the negation of one of its literals."""
    columns = [
        [(None, j), *((literal.negated(), j) for literal in literals)]
        for j, literals in offers.items()
        if literals
    ]
    for row in product(*columns):
        chosen = [(literal, j) for literal, j in row if literal is not None]
        yield tuple(literal for literal, _ in chosen), frozenset(j for _, j in chosen)
