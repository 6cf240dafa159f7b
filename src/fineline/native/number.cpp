// Numbers as Python computes with them, as far as they fit in 64 bits: the operators of guards/postfix.py.
#include "number.h"

#include <cmath>
#include <functional>

namespace fineline {

namespace {

constexpr double kTwo63 = 9223372036854775808.0;

Number from_whole(double value) {
  return value >= -kTwo63 && value < kTwo63 ? Number::of(static_cast<int64_t>(value)) : Number::bad();
}

// a / b rounded once, whatever their length, as Python does; through doubles they would be rounded three times.
double divide(int64_t a, int64_t b) {
  constexpr int64_t exact = int64_t{1} << 53;
  if (-exact <= a && a <= exact && -exact <= b && b <= exact) return static_cast<double>(a) / static_cast<double>(b);
  if (a == 0) return 0.0;
  uint64_t n = a < 0 ? -static_cast<uint64_t>(a) : a, d = b < 0 ? -static_cast<uint64_t>(b) : b;
  int shift = __builtin_clzll(n) + 63;
  unsigned __int128 scaled = static_cast<unsigned __int128>(n) << shift;
  // More bits than a double has; the last one stands for all that were cut off.
  unsigned __int128 quotient = scaled / d | (scaled % d != 0);
  double size = std::ldexp(static_cast<double>(quotient), -shift);
  return (a < 0) != (b < 0) ? -size : size;
}

double floored_mod(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod == 0.0) return std::copysign(0.0, b);
  return (b < 0) != (mod < 0) ? mod + b : mod;
}

double floored_quotient(double a, double b) {
  double mod = std::fmod(a, b), quotient = (a - mod) / b;
  if (mod != 0.0 && (b < 0) != (mod < 0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Number floor_divide(Number a, Number b) {
  if (!b.truth()) return Number::bad();
  if (!a.is_integer() || !b.is_integer()) return Number::of(floored_quotient(a.as_double(), b.as_double()));
  if (a.integer == INT64_MIN && b.integer == -1) return Number::bad();
  int64_t quotient = a.integer / b.integer;
  return Number::of(quotient - (a.integer % b.integer != 0 && (a.integer < 0) != (b.integer < 0)));
}

Number modulo(Number a, Number b) {
  if (!b.truth()) return Number::bad();
  if (!a.is_integer() || !b.is_integer()) return Number::of(floored_mod(a.as_double(), b.as_double()));
  if (b.integer == -1) return Number::of(int64_t{0});  // which traps for the least integer
  int64_t rest = a.integer % b.integer;
  return Number::of(rest != 0 && (rest < 0) != (b.integer < 0) ? rest + b.integer : rest);
}

Number true_divide(Number a, Number b) {
  if (!b.truth()) return Number::bad();
  return Number::of(a.is_integer() && b.is_integer() ? divide(a.integer, b.integer) : a.as_double() / b.as_double());
}

Number power(Number a, Number b) {
  if (!a.is_integer() || !b.is_integer()) {
    double result = std::pow(a.as_double(), b.as_double());
    // Where Python raises, or goes on with complex numbers.
    bool bad = !std::isfinite(result) && std::isfinite(a.as_double()) && std::isfinite(b.as_double());
    return bad ? Number::bad() : Number::of(result);
  }
  if (b.integer < 0) return Number::bad();
  int64_t result = 1, base = a.integer;
  for (int64_t left = b.integer; left > 0;) {
    if (left % 2 && __builtin_mul_overflow(result, base, &result)) return Number::bad();
    left /= 2;
    if (left && __builtin_mul_overflow(base, base, &base)) return Number::bad();
  }
  return Number::of(result);
}

template <typename Compare>
bool compare_exactly(int64_t a, double b, Compare compare) {
  if (std::isnan(b)) return compare(b, 0.0);
  if (b >= kTwo63) return compare(0.0, 1.0);
  if (b < -kTwo63) return compare(1.0, 0.0);
  int64_t whole = static_cast<int64_t>(b);
  return a == whole ? compare(0.0, b - static_cast<double>(whole)) : compare(a, whole);
}

template <typename Compare>
bool compare(Number a, Number b, Compare comparison) {
  if (a.is_integer() && b.is_integer()) return comparison(a.integer, b.integer);
  if (a.is_integer()) return compare_exactly(a.integer, b.real, comparison);
  if (b.is_integer()) return compare_exactly(b.integer, a.real, [&](auto x, auto y) { return comparison(y, x); });
  return comparison(a.real, b.real);
}

bool less(Number a, Number b) { return compare(a, b, [](auto x, auto y) { return x < y; }); }

template <typename Overflows, typename Rounded>
Number arithmetic(Number a, Number b, Overflows overflows, Rounded rounded) {
  if (!a.is_integer() || !b.is_integer()) return Number::of(rounded(a.as_double(), b.as_double()));
  int64_t result;
  return overflows(a.integer, b.integer, &result) ? Number::bad() : Number::of(result);
}

template <typename Combined>
Number bitwise(Number a, Number b, Combined combined) {
  return a.is_integer() && b.is_integer() ? Number::of(combined(a.integer, b.integer)) : Number::bad();
}

// The value that decides decides, even if the other operand is bad.
Number connect(Number a, Number b, bool decisive) {
  auto decides = [decisive](Number number) { return !number.is_bad() && number.truth() == decisive; };
  if (decides(a) || decides(b)) return Number::of(decisive);
  return a.is_bad() || b.is_bad() ? Number::bad() : Number::of(!decisive);
}

}  // namespace

Number apply(Operator op, Number a) {
  if (a.is_bad()) return a;
  switch (op) {
    case Operator::Neg:
      if (!a.is_integer()) return Number::of(-a.real);
      return a.integer == INT64_MIN ? Number::bad() : Number::of(-a.integer);
    case Operator::Abs:
      if (!a.is_integer()) return Number::of(std::fabs(a.real));
      return a.integer == INT64_MIN ? Number::bad() : Number::of(a.integer < 0 ? -a.integer : a.integer);
    case Operator::Not:
      return Number::of(!a.truth());
    case Operator::ToFloat:
      return Number::of(a.as_double());
    case Operator::Trunc:
      return a.is_integer() ? a : from_whole(std::trunc(a.real));
    case Operator::Floor:
      return a.is_integer() ? a : from_whole(std::floor(a.real));
    case Operator::Ceil:
      return a.is_integer() ? a : from_whole(std::ceil(a.real));
    case Operator::Round:
      return a.is_integer() ? a : from_whole(std::nearbyint(a.real));
    case Operator::Sqrt:
      return a.as_double() < 0.0 ? Number::bad() : Number::of(std::sqrt(a.as_double()));
    case Operator::Exp:
      // Too large a result is an error in Python.
      return std::isinf(std::exp(a.as_double())) && !std::isinf(a.as_double()) ? Number::bad() : Number::of(std::exp(a.as_double()));
    case Operator::Log:
      return a.as_double() <= 0.0 ? Number::bad() : Number::of(std::log(a.as_double()));
    case Operator::Log2:
      return a.as_double() <= 0.0 ? Number::bad() : Number::of(std::log2(a.as_double()));
    case Operator::Log10:
      return a.as_double() <= 0.0 ? Number::bad() : Number::of(std::log10(a.as_double()));
    case Operator::Sin:
      return std::isinf(a.as_double()) ? Number::bad() : Number::of(std::sin(a.as_double()));
    case Operator::Cos:
      return std::isinf(a.as_double()) ? Number::bad() : Number::of(std::cos(a.as_double()));
    case Operator::Tan:
      return std::isinf(a.as_double()) ? Number::bad() : Number::of(std::tan(a.as_double()));
    case Operator::Tanh:
      return Number::of(std::tanh(a.as_double()));
    default:
      return Number::bad();
  }
}

Number apply(Operator op, Number a, Number b) {
  if (op == Operator::And || op == Operator::Or) return connect(a, b, op == Operator::Or);
  if (a.is_bad() || b.is_bad()) return Number::bad();
  switch (op) {
    case Operator::Add:
      return arithmetic(a, b, [](auto x, auto y, auto* result) { return __builtin_add_overflow(x, y, result); }, std::plus<double>());
    case Operator::Sub:
      return arithmetic(a, b, [](auto x, auto y, auto* result) { return __builtin_sub_overflow(x, y, result); }, std::minus<double>());
    case Operator::Mul:
      return arithmetic(a, b, [](auto x, auto y, auto* result) { return __builtin_mul_overflow(x, y, result); }, std::multiplies<double>());
    case Operator::TrueDiv:
      return true_divide(a, b);
    case Operator::FloorDiv:
      return floor_divide(a, b);
    case Operator::Mod:
      return modulo(a, b);
    case Operator::Pow:
      return power(a, b);
    case Operator::BitAnd:
      return bitwise(a, b, std::bit_and<int64_t>());
    case Operator::BitOr:
      return bitwise(a, b, std::bit_or<int64_t>());
    case Operator::BitXor:
      return bitwise(a, b, std::bit_xor<int64_t>());
    case Operator::Min:
      return less(b, a) ? b : a;
    case Operator::Max:
      return less(a, b) ? b : a;
    case Operator::Eq:
      return Number::of(compare(a, b, [](auto x, auto y) { return x == y; }));
    case Operator::Ne:
      return Number::of(!compare(a, b, [](auto x, auto y) { return x == y; }));
    case Operator::Lt:
      return Number::of(less(a, b));
    case Operator::Gt:
      return Number::of(less(b, a));
    case Operator::Le:
      return Number::of(compare(a, b, [](auto x, auto y) { return x <= y; }));
    case Operator::Ge:
      return Number::of(compare(b, a, [](auto x, auto y) { return x <= y; }));
    default:
      return Number::bad();
  }
}

}  // namespace fineline
