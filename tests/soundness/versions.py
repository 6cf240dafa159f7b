"""Statements of a random program that Pythons compile in different ways, or that only newer ones can read.

In a text, {T} is a tensor, {I} a number, {L} a list of tensors, {D} a dict, {O} an object, {X} a name in scope that holds a tensor;
{A}, {B} and {C} are new names. Each binds {R} to a tensor.
"""

from __future__ import annotations

import sys

COMPREHENSIONS = [
    # The names of a comprehension in the frame around it hide the frame's own (PEP 709).
    "{A} = [{X} * {I} for {X} in {L}]\n{R} = {X} + len({A})",
    "{A} = lambda: {X}\n{B} = [{X} + {I} for {X} in {L}[:2]]\n{R} = {A}() + len({B})",
    "{A} = [lambda v, j=j: v * j + {B} for j, {B} in enumerate({L})]\n{R} = {A}[0]({T}) if {A} else {T}",
    "{A} = [lambda v: v * {B} for {B} in range({I} % 3)]\n{R} = sum((f({T}) for f in {A}), {T})",
    "{A} = [[u * {B} for {B} in range(2)] for u in {L}]\n{R} = {A}[0][1] if {A} else {T}",
    "{A} = [({B} := v * 2) for v in [{T}, *{L}]]\n{R} = {A}[-1] + {B}",
    "{A} = {{k: v * i for i, (k, v) in enumerate({D}.items())}}\n{R} = next(iter({A}.values()), {T})",
    "{A} = {{({I} + i) % 3 for i in range(4)}}\n{R} = {T} * sum({A})",
    "{A} = [(graph_break(), v * {I})[1] for v in [{T}, *{L}]]\n{R} = {A}[0] + {X}",
    "{A} = [float(v.sum()) for v in {L}]\n{R} = {T} * sum({A})",
    "{A} = [v for v in {L} if [w for w in range({I}) if w > 1]]\n{R} = {A}[0] if {A} else {T}",
    "try:\n    {A} = [{T} // (1 // {X}.numel() + 1 // ({B} - 1)) for {B} in range(3)]\nexcept ZeroDivisionError:\n    LOG.append({I})\n{R} = {X} + 1",
    "if {I} > 1:\n    {A} = {T}\n{B} = [{A} * 2 for {A} in {L}]\n{R} = {A} + len({B})",
    "LOG.append([sorted(n for n in locals() if n < 'm') for _ in range(1)])\n{R} = {T}",
    "{A} = [(yield_ for yield_ in [v, {T}]) for v in {L}[:1]]\n{R} = sum((next(g) for g in {A}), {T})",
    "def {A}(v):\n    return [v + w for w in {L}[:2]] + [{X} for _ in range({I} % 2)]\n{R} = sum({A}({T}), {T})",
]
CLASSES = [
    "class {C}:\n    k = {I}\n    ts = {L}[:2]\n    made = [v * j for v in ts for j in range(2)]\n    fs = [lambda u, j=j: u * j for j in range(k)]\n"
    "{R} = {C}.made[0] if {C}.made else {T}",
    "class {C}(Base):\n    def m(self, a, k=1):\n        return [super({C}, self).m(a, j) for j in range(1, 3)][{I} % 2] + self.v\n{R} = {C}({T}, {I}).m({T})",
    "class {C}(Sub):\n    def m(self, a, k=1):\n        return super().m(a, k) * super().k + super().p\n{R} = {C}({T}, {I}).m({T})",
    "class {C}:\n    {X} = [{X} for _ in range(1)][0]\n    k = [{I} for {X} in range(2)]\n{R} = {C}.{X} + {C}.k[1]",
]
STATEMENTS = [
    "try:\n    raise ExceptionGroup('g', [Oops({I}), KeyError({I})][: {I} % 2 + 1])\nexcept* Oops as {A}:\n    LOG.append(len({A}.exceptions))\n"
    "except* KeyError:\n    LOG.append({I})\n{R} = {T}",
    "try:\n    try:\n        raise ExceptionGroup('g', [Oops({I}), KeyError({I}), IndexError()])\n    except* (Oops, KeyError) as {A}:\n"
    "        LOG.append([type(e).__name__ for e in {A}.exceptions])\n        {B} = {T}\n    finally:\n        LOG.append('end')\n"
    "except ExceptionGroup as {C}:\n    LOG.append(str({C}))\n{R} = {B}",
    "try:\n    raise Oops({I})\nexcept* Oops as {A}:\n    LOG.append((str({A}), {A}.exceptions[0].args))\n{R} = {T}",
    "try:\n    raise ExceptionGroup('g', [Oops({I})])\nexcept* Oops:\n    if {I} > 1:\n        raise KeyError({I})\n{R} = {T}",
    "{A} = [{T}, *{L}]\n{A}[{I} - 2 : {I}] = [{T}]\ndel {A}[{I} + 1 :]\n{R} = ({A}[-{I} :] or [{T}])[0]",
    "{A} = {T}.clone()\n{A}[{I} % 2 :] = {T}[{I} % 2 :]\n{R} = {A}[:{I}].sum() + {A}[..., 1:].mean() + {A}",
    "{R} = {T} * sum([0.1, 1e16, float({I}), -1e16]) + sum([r, {I}, 0.1]) + sum((True, 2, {I}), 0.5)",
    "match {O}:\n    case Sub(n={A}, v={B}) if {A} > {I}:\n        {R} = {B} * {A}\n    case Base(k={A}, items=[_, *{B}]):\n        {R} = {T} * {A} + len({B})\n"
    "    case _:\n        {R} = {T}",
    "match {D}:\n    case {{'a': {A}, **{B}}} if len({B}) < 2:\n        {R} = {A} + len({B})\n    case {{}}:\n        {R} = {T}",
    "for {A} in range(3):\n    try:\n        if {A} == {I} % 3:\n            continue\n        {B} = {T} * {A}\n    finally:\n        LOG.append({A})\n{R} = {B}",
    "with contextlib.ExitStack() as {A}:\n    {A}.enter_context(scope('a'))\n    {A}.callback(LOG.append, {I})\n    {B} = {T}\n"
    "    {C} = [][{I}] if {I} > 2 else 1\n{R} = {B} * {C}",
    "{A} = '{{:>{{}}}}'.format({I}, 4) + f'{{{I}!r:>{{{I}}}}}' + f'{{r:.2f}}'\nLOG.append({A})\n{R} = {T} * len({A})",
    "{A} = dict(a={I}, **{{'b': {I}}})\n{R} = (lambda *p, a, b, **kw: p[0] * a + b)({T}, *{L}, **{A})",
    "{A} = iter({L})\n{B} = [v + w for v, w in zip({A}, {A})]\n{R} = {B}[0] if {B} else {T}",
    "{A} = list(itertools.accumulate([{T}, *{L}]))\n{R} = {A}[-1] + sum(itertools.chain.from_iterable([[{I}], [1]]))",
    "{R} = sum((a * b for a, b in itertools.pairwise([{T}, *{L}])), {T})",
]
NEWER = {
    (3, 12): [
        "def {A}[P, Q: int](v: P, k: Q = {I}) -> P:\n    return v * k + {X}\n{R} = {A}({T})",
        "def {A}[P](v: P, k: P = {T}):\n    return lambda u: v + u * {I}, P.__name__\n{R} = {A}({T})[0]({T})",
        "class {C}[P](Base):\n    def m[Q](self, a: Q, k=1) -> P:\n        return super().m(a, k) * 2 + self.v\n{R} = {C}({T}, {I}).m({T})",
        "class {C}[P]:\n    k = [{I} for _ in range(2)]\n    def m(self, v: P) -> P:\n        return v * __class__.k[0] + {X}\n{R} = {C}().m({T})",
        "type {A}[P] = list[P]\n{R} = {T} * len({A}.__type_params__)",
        "{A} = list(itertools.batched([{T}, *{L}], 2))\n{R} = {A}[-1][0] + len({A})",
        "{R} = {T}\nfor {A} in itertools.batched([{I}, 1, 2, 3, 4], {I} % 3 + 1):\n    {R} = {R} * {A}[0] + len({A})\n    if {I} > 2:\n        break",
        'LOG.append(f"{{"a" + f"{{{I}}}"!r:>{{5}}}}")\n{R} = {T}',
        "{A} = slice({I} % 2, None)\n{R} = {T} * len({{{A}: 1}})",
    ],
    (3, 13): [
        "def {A}[P = int](v: P, k=[{I} for _ in range(2)]) -> P:\n    return v * k[1] + {X}\n{R} = {A}({T})",
        "class {C}[P = {I}](Base):\n    k = {I}\n{R} = {C}({T}, {I}).m({T}) * {C}.__firstlineno__",
        "{A} = locals()\n{A}['nothing'] = {I}\n{R} = {T} * len([n for n in ('x', 'nothing') if n in locals()])",
        "{A} = [(lambda: locals())() for {B} in range(2)]\n{R} = {T} * len({A}[0])",
    ],
    (3, 14): [
        "try:\n    {A} = {{}}[{I}]\nexcept KeyError, Oops:\n    LOG.append({I})\n{R} = {T}",
        "{A} = t'{{{I}}}-{{{T}}}'\nLOG.append({A}.strings)\n{R} = {A}.values[1]",
    ],
}
TEXTS = COMPREHENSIONS + CLASSES + STATEMENTS + [text for version, texts in NEWER.items() if version <= sys.version_info[:2] for text in texts]
