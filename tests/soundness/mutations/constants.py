"""Guard mutations of constants: both type and value count."""

from __future__ import annotations

import collections
import functools
import math

import torch

from tests.soundness.mutations.cases import Cases, Color, Doubler, Level, Tripler, argument

CASES = Cases()
case = CASES.add


class S(str):
    pass


class I(int):
    pass


class Fl(float):
    pass


for _name, _read, _before, _after in [
    ("true_and_one", lambda x, v: x * (2 if v is True else 3), True, 1),
    ("one_and_one_point_zero", lambda x, v: x * (2 if type(v) is int else 3), 1, 1.0),
    ("negative_zero", lambda x, v: x * math.copysign(1.0, v), 0.0, -0.0),
    ("nan", lambda x, v: x * (2 if v != v else 3), float("nan"), 1.0),
    ("sign_of_a_nan", lambda x, v: x * math.copysign(1.0, v), math.nan, -math.nan),
    ("sign_of_a_nan_in_a_tuple", lambda x, v: x * math.copysign(1.0, v[0]), (math.nan,), (-math.nan,)),
    ("sign_of_a_nan_in_a_dict", lambda x, v: x * math.copysign(1.0, v["a"]), {"a": math.nan}, {"a": -math.nan}),
    ("sign_of_a_complex_nan", lambda x, v: x * math.copysign(1.0, v.imag), complex(0.0, math.nan), complex(0.0, -math.nan)),
    ("sign_of_a_complex_zero", lambda x, v: x * math.copysign(1.0, v.real), complex(0.0, 1.0), complex(-0.0, 1.0)),
    ("sign_of_a_nan_for_an_operator", lambda x, v: torch.copysign(x, x * 0 + v), math.nan, -math.nan),
    ("negative_zero_in_a_tuple", lambda x, v: x * math.copysign(1.0, v[0]), (0.0,), (-0.0,)),
    ("float_subclass_negative_zero", lambda x, v: x * math.copysign(1.0, float(v)), Fl(0.0), Fl(-0.0)),
    ("string_subclass", lambda x, v: x * (2 if type(v) is str else 3), "a", S("a")),
    ("string_subclass_value", lambda x, v: x * len(v), S("a"), S("abc")),
    ("int_subclass_value", lambda x, v: x * int(v), I(2), I(3)),
    ("int_enum", lambda x, v: x * v.value, Level.LOW, Level.HIGH),
    ("int_enum_and_int", lambda x, v: x * (2 if isinstance(v, Level) else 3), Level.LOW, 2),
    ("none_and_value", lambda x, v: x if v is None else x * v, None, 2),
    ("empty_string", lambda x, v: x if v else x * 2, "", "a"),
    ("int_truth", lambda x, v: x if v else x * 2, 1000, 0),
    ("number_formatted", lambda x, v: x * len(f"{v}"), 1000, 10000),
    ("number_compared", lambda x, v: x * (2 if v > 1500 else 3), 1000, 2000),
    ("number_in_a_range", lambda x, v: sum([x * i for i in range(v)]), 300, 301),
    ("number_is_instance", lambda x, v: x * (2 if isinstance(v, int) else 3), 1000, 1000.0),
    ("float_used", lambda x, v: x * v, 2.5, 3.5),
    ("float_nested", lambda x, v: x * v[0][0], ((2.5,),), ((3.5,),)),
    ("dtype_given", lambda x, v: x.to(v), torch.float64, torch.int32),
    ("device_given", lambda x, v: x.to(v), torch.device("cpu"), torch.device("meta")),
    ("slice_given", lambda x, v: x[v], slice(0, 1), slice(0, 2)),
    ("range_given", lambda x, v: x * len(v), range(2), range(3)),
    ("ellipsis_given", lambda x, v: x[v], ..., 0),
    ("complex_given", lambda x, v: x * v, 1j, 2j),
    ("type_given", lambda x, v: v()(x), Doubler, Tripler),
    ("enum_is", lambda x, v: x * (2 if v is Color.RED else 3), Color.RED, Color.BLUE),
    ("list_or_tuple", lambda x, v: x * (2 if isinstance(v, list) else 3), [1], (1,)),
    ("dict_subclass_or_dict", lambda x, v: x * (2 if type(v) is dict else 3), {}, collections.OrderedDict()),
    ("tensor_or_number", lambda x, v: x * v, 2.0, torch.tensor(3.0)),
    ("object_type", lambda x, v: v(x), Doubler(), Tripler()),
    ("number_as_a_setting", lambda x, v: x.sum(dim=v), 0, 1),
    ("big_number_as_a_size", lambda x, v: torch.zeros(v).numel() + x, 1000, 1001),
    ("metadata_by_keyword", lambda x, v: x.size(dim=v) * x, 0, 1),
    ("cached_with_a_tuple", lambda x, v: x * cached_sum((v, 1)), 1000, 2000),
    ("list_of_numbers", lambda x, v: x.reshape(v), [2, 3], [3, 2]),
]:
    CASES[_name] = lambda read=_read, before=_before, after=_after: argument(lambda x, v: read(x, v), before, after)


@functools.cache
def cached_sum(pair):
    return pair[0] + pair[1]
