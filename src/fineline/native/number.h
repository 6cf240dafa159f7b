// Numbers as Python computes with them, as far as they fit in 64 bits: the operators of guards/postfix.py.
#pragma once

#include <cstdint>

namespace fineline {

struct Number {
  enum class Kind : uint8_t { Bad, Integer, Real };  // Bad: there is no such number
  Kind kind;
  union {
    int64_t integer;
    double real;
  };

  static Number of(int64_t value) { return {Kind::Integer, {.integer = value}}; }
  static Number of(bool value) { return of(static_cast<int64_t>(value)); }
  static Number of(double value) { return {Kind::Real, {.real = value}}; }
  static Number bad() { return {Kind::Bad, {.integer = 0}}; }

  bool is_bad() const { return kind == Kind::Bad; }
  bool is_integer() const { return kind == Kind::Integer; }
  bool truth() const { return is_integer() ? integer != 0 : real != 0.0; }
  double as_double() const { return is_integer() ? static_cast<double>(integer) : real; }
};

// In the order of the table in relation.cpp; by the number of their operands.
enum class Operator : uint8_t {
  Leaf, Const,
  Neg, Abs, Not, ToFloat, Trunc, Floor, Ceil, Round, Sqrt, Exp, Log, Log2, Log10, Sin, Cos, Tan, Tanh,
  Add, Sub, Mul, TrueDiv, FloorDiv, Mod, Pow, BitAnd, BitOr, BitXor, Min, Max, Eq, Ne, Lt, Le, Gt, Ge, And, Or,
  Select,
};

Number apply(Operator op, Number operand);
Number apply(Operator op, Number left, Number right);

}  // namespace fineline
