// Making a shortcut table: what has to be compared, step by step, so that the step need not be evaluated.
#include <unordered_set>

#include "constants.h"
#include "program.h"
#include "shortcut.h"

namespace fineline {

class ShortcutBuilder {
 public:
  ShortcutBuilder(Program& program, Shortcut& table) : program_(program), table_(table), early_(program.n_registers(), false) {}

  void add(int number) {
    Step& step = program_.steps[number];
    step_ = number;
    State state = program_.fickle[number] ? State::Dynamic : cover(step);
    if (step.dst >= 0) table_.states_[step.dst] = state;
    if (state != State::Dynamic) return;
    bool early = step.op == Op::Root || (step.src >= 0 && early_[step.src]);
    for (int other : step.registers) early = early && early_[other];
    if (step.dst >= 0) early_[step.dst] = early;
    (early ? table_.early_ : table_.late_).push_back(number);
  }

 private:
  using State = Shortcut::State;
  static constexpr State kCovered = State::Stable;  // for checks: nothing left to evaluate

  PyObject* value(int reg) const { return table_.registers[reg]; }
  bool stable(int reg) const { return table_.states_[reg] == State::Stable; }

  // Covers a step by words. Dynamic: it has to be evaluated in each pass. For an access step, otherwise, what its result is.
  State cover(Step& step) {
    if (step.op == Op::Storages) return sharing(step);
    if (step.src >= 0 && !table_.known(step.src)) return State::Dynamic;
    for (int other : step.registers) {
      if (!table_.known(other)) return State::Dynamic;
    }
    switch (step.op) {
      case Op::Root:
        table_.roots.push_back({static_cast<int>(step.number), step_, value(step.dst)});
        return State::Pointed;
      case Op::Pin:
        return State::Stable;
      case Op::TypeAttr:
      case Op::TypeLacks:
        return type_version(step.type) ? State::Stable : State::Dynamic;
      case Op::Dict:
        return instance_dict(step);
      case Op::Key:
      case Op::Absent:
      case Op::Keys:
        return dict_version(step.src) ? State::Stable : State::Dynamic;
      case Op::Index:
        return item(step);
      case Op::Cell:
        return pointed(typed(step.src) && watch(&reinterpret_cast<PyCellObject*>(value(step.src))->ob_ref));
      case Op::Member:
        return pointed(typed(step.src) && watch(reinterpret_cast<char*>(value(step.src)) + step.number));
      case Op::Type:
        return covered(typed(step.src));
      case Op::Eq:
        // An address says nothing about the value of a pointed object, unless it is the program's own constant.
        return covered(stable(step.src) || value(step.src) == step.payload);
      case Op::Len:
        return covered(length(step.src));
      case Op::Function:
        return covered(function(step.src));
      case Op::Weak:
        return covered(stable(step.src) || watch(&reinterpret_cast<PyWeakReference*>(step.payload)->wr_object));
      case Op::Is:
      case Op::Same:
      case Op::Distinct:
        return kCovered;  // a matter of addresses alone
      case Op::Tensor:
        return covered(typed(step.src) && watch(tensor_words(value(step.src), *step.tensor)));
      default:
        return State::Dynamic;
    }
  }

  static State covered(bool yes) { return yes ? kCovered : State::Dynamic; }
  static State pointed(bool yes) { return yes ? State::Pointed : State::Dynamic; }

  // From now on, the table compares what is at `at`.
  bool watch(const void* at) {
    if (watched_.insert(at).second) add_word(at, -1);
    return true;
  }

  bool watch(const std::vector<const void*>& words) {
    for (const void* at : words) watch(at);
    return !words.empty();
  }

  void add_word(const void* at, int dict) {
    table_.words_.push_back({at, load_word(at)});
    table_.origins_.push_back({step_, dict});
  }

  // Makes sure that the object in `reg` has, in each pass, the type it has now. The type must not be one that can die and leave its
  // address to another: the program holds it, or it is static.
  bool typed(int reg) {
    PyTypeObject* type = Py_TYPE(value(reg));
    bool is_static = !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);
    // Neither deallocation nor, but for modules, `__class__` assignment takes a static type away from an instance.
    if (stable(reg) && is_static && !PyType_IsSubtype(type, &PyModule_Type)) return true;
    if (!is_static && !program_.holds_type(type)) return false;
    return watch(&value(reg)->ob_type);
  }

  bool type_version(PyTypeObject* type) {
    if (!has_version(type)) return false;
    if (versioned_.insert(type).second) table_.versions_.push_back({type, type->tp_version_tag});
    return true;
  }

  State instance_dict(const Step& step) {
    PyTypeObject* type = Py_TYPE(value(step.src));
    bool determines_slot = (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) || type->tp_dictoffset > 0;
    if (!determines_slot || !typed(step.src)) return State::Dynamic;
    is_dict_.insert(step.dst);  // nothing else fits in the slot
    return pointed(watch(_PyObject_GetDictPtr(value(step.src))));
  }

  // A stamp is given to one state of one dict only, so an equal one proves the dict and all it holds.
  bool dict_version(int reg) {
    PyObject* dict = value(reg);
    if (!PyDict_Check(dict) || !(stable(reg) || is_dict_.count(reg) || typed(reg))) return false;
    if (table_.word_of_dict_[reg] >= 0) return true;
    if (!table_.stamps_[reg].take(dict)) return false;
    // Not shared with another register of the same dict: each has steps of its own to ask when the version changes.
    table_.word_of_dict_[reg] = static_cast<int>(table_.words_.size());
    add_word(table_.stamps_[reg].at(), reg);
    return true;
  }

  State item(const Step& step) {
    PyObject* sequence = value(step.src);
    if (PyTuple_Check(sequence) && stable(step.src)) return State::Stable;
    if (!typed(step.src)) return State::Dynamic;
    watch(&reinterpret_cast<PyVarObject*>(sequence)->ob_size);
    if (PyList_Check(sequence)) watch(&reinterpret_cast<PyListObject*>(sequence)->ob_item);
    return pointed(watch(&PySequence_Fast_ITEMS(sequence)[step.number]));
  }

  bool length(int reg) {
    PyObject* object = value(reg);
    if (PyDict_Check(object)) return dict_version(reg);
    if (PyTuple_Check(object) && stable(reg)) return true;
    if (!typed(reg)) return false;
    if (PyAnySet_Check(object)) return watch(&reinterpret_cast<PySetObject*>(object)->used);
    return watch(&reinterpret_cast<PyVarObject*>(object)->ob_size);
  }

  State sharing(const Step& step) {
    Shortcut::Sharing sharing{step_, {}, {}};
    for (size_t i = 0; i < step.registers.size(); i++) {
      int reg = step.registers[i];
      PyObject* tensor = value(reg);
      sharing.keys.push_back(storage_key(tensor));
      if (table_.known(reg) && (stable(reg) || typed(reg))) {
        watch(storage_words(tensor));
      } else {
        sharing.unknown.push_back(i);
      }
    }
    table_.sharings_.push_back(std::move(sharing));
    return kCovered;
  }

  bool function(int reg) {
    auto function = reinterpret_cast<PyFunctionObject*>(value(reg));
    return typed(reg) && watch({&function->func_code, &function->func_defaults, &function->func_kwdefaults});
  }

  Program& program_;
  Shortcut& table_;
  int step_ = 0;                                    // the step that is being covered
  std::vector<char> early_;                         // by register: dynamic, and reached from dynamic roots alone
  std::unordered_set<const void*> watched_;         // where the words are
  std::unordered_set<PyTypeObject*> versioned_;     // types whose version is compared
  std::unordered_set<int> is_dict_;                 // registers that hold the dict of an instance
};

Shortcut::Shortcut(Program& program, PyObject* const* current)
    : registers(current, current + program.n_registers()),
      word_of_dict_(program.n_registers(), -1),
      stamps_(program.n_registers()),
      states_(program.n_registers(), State::Dynamic),
      types_(program.n_registers(), nullptr) {
  for (int number : program.plan().quiet) {
    int reg = program.steps[number].dst;
    if (reg >= 0) types_[reg] = Py_TYPE(registers[reg]);
  }
  ShortcutBuilder builder(program, *this);
  for (int number : program.plan().quiet) builder.add(number);
}

}  // namespace fineline
