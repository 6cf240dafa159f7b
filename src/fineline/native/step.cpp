// The evaluation of single steps by value.
#include "step.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "constants.h"

namespace fineline {

namespace {

PyObject* read_step = nullptr;      // evaluate.read_step
PyObject* holds_step = nullptr;     // evaluate.holds_step
PyObject* ambient_facts = nullptr;  // facts.ambient_facts
PyTypeObject* local_type = nullptr; // threading.local

Verdict read_dict(PyObject* object, PyObject** result) {
  if (PyType_Check(object)) return Verdict::Fail;
  if (PyObject_TypeCheck(object, local_type)) return Verdict::Python;
  if (Py_TYPE(object)->tp_dictoffset == 0) return Verdict::Fail;
  // The dict may have to be allocated, where the cyclic collector would run finalizers: any code at all.
  int collects = PyGC_Disable();
  Ref dict(PyObject_GenericGetDict(object, nullptr));
  if (collects) PyGC_Enable();
  if (!dict) PyErr_Clear();
  *result = dict.get();  // which the object holds, too
  return verdict(dict && PyDict_Check(dict.get()));
}

Verdict read_item(PyObject* object, Py_ssize_t index, PyObject** result) {
  if (!PyTuple_Check(object) && !PyList_Check(object)) return Verdict::Python;  // C has no way into a deque
  if (index < 0 || index >= Py_SIZE(object)) return Verdict::Fail;
  *result = PySequence_Fast_GET_ITEM(object, index);
  return Verdict::Pass;
}

Verdict read_member(const Step& step, PyObject* object, PyObject** result) {
  if (!PyObject_TypeCheck(object, step.type)) return Verdict::Fail;
  PyObject* value;
  std::memcpy(&value, reinterpret_cast<char*>(object) + step.number, sizeof value);
  *result = value ? value : Py_None;
  return verdict(value || step.null_is_none);
}

Verdict check_length(PyObject* object, Py_ssize_t expected) {
  if (PyList_Check(object) || PyTuple_Check(object)) return verdict(Py_SIZE(object) == expected);
  if (PyDict_Check(object)) return verdict(PyDict_GET_SIZE(object) == expected);
  if (PyAnySet_Check(object)) return verdict(PySet_GET_SIZE(object) == expected);
  return Verdict::Python;
}

Verdict check_keys(PyObject* dict, PyObject* expected) {
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(expected)) return Verdict::Fail;
  // An OrderedDict keeps its order apart from the dict, and moves keys without a change of version; Python knows it.
  if (PyODict_Check(dict) && PyDict_GET_SIZE(dict) > 1) return Verdict::Python;
  Py_ssize_t position = 0, index = 0;
  PyObject* key;
  Verdict all = Verdict::Pass;
  while (all == Verdict::Pass && PyDict_Next(dict, &position, &key, nullptr)) {
    all = same_constant(key, PyTuple_GET_ITEM(expected, index++));
  }
  return all;
}

bool check_function(PyObject* object, PyObject* expected) {
  if (Py_TYPE(object) != &PyFunction_Type) return false;
  auto function = reinterpret_cast<PyFunctionObject*>(object);
  auto same = [](PyObject* field, PyObject* wanted) { return (field ? field : Py_None) == wanted; };
  return function->func_code == PyTuple_GET_ITEM(expected, 0) && same(function->func_defaults, PyTuple_GET_ITEM(expected, 1)) &&
      same(function->func_kwdefaults, PyTuple_GET_ITEM(expected, 2));
}

// A set of addresses, in a table that is at least half empty.
class Addresses {
 public:
  explicit Addresses(size_t most) : table_(std::bit_ceil(2 * most)) {}

  bool contains(PyObject* object) const { return table_[slot(object)] == object; }

  // False if it is there already.
  bool add(PyObject* object) {
    PyObject*& found = table_[slot(object)];
    if (found) return false;
    found = object;
    return true;
  }

 private:
  // Where the object is, or belongs. Objects lie at multiples of 16; the product spreads what is near each other.
  size_t slot(PyObject* object) const {
    uint64_t hash = (reinterpret_cast<uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15u;
    size_t last = table_.size() - 1, at = (hash >> 32) & last;
    while (table_[at] && table_[at] != object) at = (at + 1) & last;
    return at;
  }

  std::vector<PyObject*> table_;
};

// Whether the objects in the first `number` registers differ from each other, and from those in all registers behind them.
bool are_distinct(const Step& step, PyObject** registers) {
  size_t ones = step.number, all = step.registers.size();
  auto object = [&](size_t i) { return registers[step.registers[i]]; };
  if (ones <= kFew) {
    for (size_t i = 0; i < ones; i++) {
      for (size_t j = i + 1; j < all; j++) {
        if (object(i) == object(j)) return false;
      }
    }
    return true;
  }
  Addresses seen(ones);
  for (size_t i = 0; i < ones; i++) {
    if (!seen.add(object(i))) return false;
  }
  for (size_t i = ones; i < all; i++) {
    if (seen.contains(object(i))) return false;
  }
  return true;
}

// A null key means that the object is not a tensor.
Verdict check_storages(const Step& step, PyObject** registers) {
  std::vector<const void*> keys;
  keys.reserve(step.registers.size());
  for (int reg : step.registers) keys.push_back(storage_key(registers[reg]));
  bool tensors = std::find(keys.begin(), keys.end(), nullptr) == keys.end();
  return verdict(tensors && shared_as(keys, step.pattern));
}

// The leaves' values by the numbers that the step as it was given has for their registers; null with an error set.
Ref name_leaves(const Step& step, PyObject** registers) {
  Ref named(PyDict_New());
  PyObject* leaves = PyTuple_GET_ITEM(step.payload, 0);
  for (size_t i = 0; named && i < step.registers.size(); i++) {
    PyObject* number = PyTuple_GET_ITEM(PyTuple_GET_ITEM(leaves, i), 1);
    if (PyDict_SetItem(named.get(), number, registers[step.registers[i]]) < 0) return nullptr;
  }
  return named;
}

}  // namespace

bool shared_as(const std::vector<const void*>& keys, const std::vector<int>& pattern) {
  std::unordered_map<const void*, int> firsts;
  firsts.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); i++) {
    if (firsts.emplace(keys[i], i).first->second != pattern[i]) return false;
  }
  return true;
}

Verdict evaluate_step(const Step& step, PyObject** registers, PyObject* const* roots) {
  PyObject* value = step.src >= 0 ? registers[step.src] : nullptr;
  PyObject** result = step.dst >= 0 ? &registers[step.dst] : nullptr;
  if (step.python) return Verdict::Python;
  switch (step.op) {
    case Op::Root:
      *result = roots[step.number];
      return Verdict::Pass;
    case Op::Pin:
      *result = step.payload;
      return Verdict::Pass;
    case Op::Dict:
      return read_dict(value, result);
    case Op::Key:
      return PyDict_Check(value) ? find_key(value, step.payload, step.hash, result) : Verdict::Fail;
    case Op::Index:
      return read_item(value, step.number, result);
    case Op::Cell:
      return verdict(PyCell_Check(value) && (*result = PyCell_GET(value)));
    case Op::Member:
      return read_member(step, value, result);
    case Op::TypeAttr:
      return verdict((*result = _PyType_Lookup(step.type, step.name)));
    case Op::Is:
      return verdict(value == step.payload);
    case Op::Type:
      return verdict(Py_TYPE(value) == step.type);
    case Op::Eq:
      return same_constant(value, step.payload);
    case Op::Len:
      return check_length(value, step.number);
    case Op::Keys:
      return check_keys(value, step.payload);
    case Op::Absent: {
      PyObject* found;
      if (!PyDict_Check(value)) return Verdict::Fail;
      Verdict lookup = find_key(value, step.payload, step.hash, &found);
      return lookup == Verdict::Python ? lookup : verdict(lookup == Verdict::Fail);
    }
    case Op::TypeLacks:
      return verdict(!_PyType_Lookup(step.type, step.name));
    case Op::Function:
      return verdict(check_function(value, step.payload));
    case Op::Same:
      return verdict(value == registers[step.registers[0]]);
    case Op::Distinct:
      return verdict(are_distinct(step, registers));
    case Op::Tensor:
      return tensor_matches(value, *step.tensor);
    case Op::Storages:
      return check_storages(step, registers);
    case Op::Relation:
      return relation_holds(*step.relation, step.registers, registers);
    case Op::Weak:
      return verdict(value != Py_None && reinterpret_cast<PyWeakReference*>(step.payload)->wr_object == value);
    default:
      return Verdict::Python;
  }
}

int evaluate_step_anyhow(Step& step, PyObject** registers, PyObject* const* roots, std::vector<Ref>& owned) {
  if (step.op == Op::Ambient) return check_ambient(step);
  Verdict outcome = evaluate_step(step, registers, roots);
  if (outcome != Verdict::Python) {
    if (outcome == Verdict::Pass && is_access(step.op)) owned.push_back(new_ref(registers[step.dst]));
    return outcome == Verdict::Pass;
  }
  PyObject* op = PyTuple_GET_ITEM(step.tuple, 0);
  if (step.op == Op::Relation) {
    Ref named = name_leaves(step, registers);
    Ref answer(named ? PyObject_CallFunction(holds_step, "OiOO", op, -1, step.payload, named.get()) : nullptr);
    return answer ? PyObject_IsTrue(answer.get()) : -1;
  }
  PyObject* value = registers[step.src];
  if (is_access(step.op)) {
    owned.emplace_back(PyObject_CallFunction(read_step, "OOO()", op, value, step.payload));
    registers[step.dst] = owned.back().get();
    return owned.back() ? 1 : -1;
  }
  Ref answer(
      step.op == Op::Predicate ? PyObject_CallOneArg(PyTuple_GET_ITEM(step.payload, 0), value)
                               : PyObject_CallFunction(holds_step, "OiO{iO}", op, 0, step.payload, 0, value));
  return answer ? PyObject_IsTrue(answer.get()) : -1;
}

int check_ambient(Step& step) {
  std::optional<AmbientPicture> before = picture_ambient();
  if (before && before == step.passed) return 1;
  if (before && before == step.failed) return 0;
  Ref facts(PyObject_CallNoArgs(ambient_facts));
  int same = facts ? PyObject_RichCompareBool(facts.get(), step.payload, Py_EQ) : -1;
  // The facts are those of the picture only if nothing changed while Python ran.
  if (same >= 0 && before && picture_ambient() == before) (same ? step.passed : step.failed) = before;
  return same;
}

bool init_steps() {
  if (local_type) return true;
  Ref evaluate(PyImport_ImportModule("fineline.guards.evaluate")), facts(PyImport_ImportModule("fineline.guards.facts"));
  Ref thread(PyImport_ImportModule("_thread"));
  if (!evaluate || !facts || !thread) return false;
  read_step = PyObject_GetAttrString(evaluate.get(), "read_step");
  holds_step = PyObject_GetAttrString(evaluate.get(), "holds_step");
  ambient_facts = PyObject_GetAttrString(facts.get(), "ambient_facts");
  local_type = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(thread.get(), "_local"));
  return read_step && holds_step && ambient_facts && local_type;
}

}  // namespace fineline
