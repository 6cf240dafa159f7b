// A relation between sizes and numbers: a stack machine over 64-bit integers and doubles, which never runs Python.
#include "relation.h"

#include <algorithm>
#include <array>

#include "number.h"
#include "tensor_spec.h"

namespace fineline {

namespace {

// As in guards/postfix.py: of leaves, and of numbers on the stack.
constexpr size_t kMost = 64;

constexpr std::array<const char*, 4> kLeaves = {"size", "stride", "offset", "number"};
constexpr std::array<const char*, 40> kOperators = {
    "leaf", "const",
    "neg", "abs", "not", "to_float", "trunc", "floor", "ceil", "round", "sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "tanh",
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "bit_and", "bit_or", "bit_xor", "min", "max", "eq", "ne", "lt",
    "le", "gt", "ge", "and", "or", "select"};

size_t operands(Operator op) { return op <= Operator::Const ? 0 : op <= Operator::Tanh ? 1 : op <= Operator::Or ? 2 : 3; }

struct Leaf {
  bool number;  // the register holds it; else a tensor does
  TensorNumber which;
  size_t index;
};

struct Instruction {
  Operator op;
  size_t leaf;
  Number constant;
};

// False if it is none that the machine has.
bool read_number(PyObject* object, Number& number) {
  if (PyFloat_CheckExact(object)) {
    number = Number::of(PyFloat_AS_DOUBLE(object));
    return true;
  }
  if (!PyLong_CheckExact(object) && !PyBool_Check(object)) return false;
  int overflow;
  number = Number::of(static_cast<int64_t>(PyLong_AsLongLongAndOverflow(object, &overflow)));
  return !overflow;
}

Verdict read_leaf(const Leaf& leaf, PyObject* object, Number& number) {
  if (leaf.number) return verdict(read_number(object, number));
  int64_t value = 0;
  Verdict found = tensor_number(object, leaf.which, leaf.index, value);
  number = Number::of(value);
  return found;
}

template <size_t n>
bool find_name(PyObject* name, const std::array<const char*, n>& names, size_t& position) {
  if (!PyUnicode_Check(name)) return false;
  auto known = [name](const char* other) { return PyUnicode_CompareWithASCIIString(name, other) == 0; };
  position = std::find_if(names.begin(), names.end(), known) - names.begin();
  return position < n;
}

bool parse_leaf(PyObject* tuple, Leaf& leaf, int& reg) {
  size_t kind;
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 3 || !find_name(PyTuple_GET_ITEM(tuple, 0), kLeaves, kind)) return false;
  reg = static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(tuple, 1)));
  Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, 2));
  bool indexed = kind < static_cast<size_t>(TensorNumber::Offset);
  leaf = {kind == kLeaves.size() - 1, static_cast<TensorNumber>(kind), static_cast<size_t>(index)};
  return !PyErr_Occurred() && (index >= 0 || !indexed);
}

bool parse_instruction(PyObject* tuple, size_t n_leaves, Instruction& instruction) {
  size_t op;
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 2 || !find_name(PyTuple_GET_ITEM(tuple, 0), kOperators, op)) return false;
  instruction = {static_cast<Operator>(op), 0, Number::bad()};
  PyObject* argument = PyTuple_GET_ITEM(tuple, 1);
  if (instruction.op == Operator::Const) return read_number(argument, instruction.constant);
  if (instruction.op != Operator::Leaf) return true;
  instruction.leaf = static_cast<size_t>(PyLong_AsSsize_t(argument));
  return !PyErr_Occurred() && instruction.leaf < n_leaves;
}

}  // namespace

class Relation {
 public:
  std::vector<Leaf> leaves;
  std::vector<Instruction> code;
};

RelationPtr parse_relation(PyObject* payload, std::vector<int>& registers) {
  if (!PyTuple_Check(payload) || PyTuple_GET_SIZE(payload) != 3) return nullptr;
  PyObject *leaves = PyTuple_GET_ITEM(payload, 0), *code = PyTuple_GET_ITEM(payload, 1);
  if (!PyTuple_Check(leaves) || !PyTuple_Check(code) || PyTuple_GET_SIZE(leaves) > static_cast<Py_ssize_t>(kMost)) return nullptr;
  auto relation = std::make_shared<Relation>();
  relation->leaves.resize(PyTuple_GET_SIZE(leaves));
  registers.resize(relation->leaves.size());
  for (size_t i = 0; i < registers.size(); i++) {
    if (!parse_leaf(PyTuple_GET_ITEM(leaves, i), relation->leaves[i], registers[i])) return nullptr;
  }
  relation->code.resize(PyTuple_GET_SIZE(code));
  size_t depth = 0;
  for (size_t i = 0; i < relation->code.size(); i++) {
    Instruction& instruction = relation->code[i];
    if (!parse_instruction(PyTuple_GET_ITEM(code, i), registers.size(), instruction)) return nullptr;
    if (depth < operands(instruction.op)) return nullptr;
    depth += 1 - operands(instruction.op);
    if (depth > kMost) return nullptr;
  }
  return depth == 1 ? relation : nullptr;
}

Verdict relation_holds(const Relation& relation, const std::vector<int>& leaves, PyObject* const* registers) {
  std::array<Number, kMost> values, stack;
  for (size_t i = 0; i < leaves.size(); i++) {
    Verdict found = read_leaf(relation.leaves[i], registers[leaves[i]], values[i]);
    if (found != Verdict::Pass) return found;
  }
  Number* end = stack.data();
  for (const Instruction& instruction : relation.code) {
    size_t n = operands(instruction.op);
    if (n == 0) {
      *end++ = instruction.op == Operator::Leaf ? values[instruction.leaf] : instruction.constant;
    } else if (n == 1) {
      end[-1] = apply(instruction.op, end[-1]);
    } else if (n == 2) {
      end[-2] = apply(instruction.op, end[-2], end[-1]);
      end -= 1;
    } else {
      end[-3] = end[-3].is_bad() ? end[-3] : end[-3].truth() ? end[-2] : end[-1];
      end -= 2;
    }
  }
  return verdict(!stack[0].is_bad() && stack[0].truth());
}

}  // namespace fineline
