// The Python type Dispatcher: tries guard programs and calls the target of the one that hits, with nothing in between.
#include <memory>
#include <vector>

#include "program.h"
#include "types.h"

namespace fineline {

namespace {

struct Entry {
  Py_ssize_t nargs;
  Ref kwnames;  // tuple of names, empty if there are none
  Ref program;  // GuardProgram, or None: always a hit
  Ref target;
};

struct Entries {
  std::vector<Entry> list;
  size_t recent = 0;
};

struct Dispatcher {
  PyObject_HEAD
  PyObject* load;                     // gives the four below at the first call that no entry fits; null if they were given
  PyObject* miss;                     // null until then
  PyObject* failed;                   // hears of what a target raises; may be null
  PyObject* unfinished;               // a type: a target's result that begins with one is given to finish; may be null
  PyObject* finish;
  std::shared_ptr<Entries>* entries;  // a call keeps those it started with
  PyObject* weakrefs;
  vectorcallfunc vectorcall;
};

Dispatcher* as_dispatcher(PyObject* self) { return reinterpret_cast<Dispatcher*>(self); }

bool same_names(PyObject* entry, PyObject* kwnames) {
  if (entry == kwnames) return true;
  Py_ssize_t count = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (PyTuple_GET_SIZE(entry) != count) return false;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *a = PyTuple_GET_ITEM(entry, i), *b = PyTuple_GET_ITEM(kwnames, i);
    if (a != b && PyUnicode_Compare(a, b) != 0) return false;
  }
  return true;
}

// Calls the target if the entry's program hits. Error: what the target or an interrupted guard raised.
Outcome try_entry(const Entry& entry, PyObject* const* roots, Py_ssize_t n_roots, PyObject** result) {
  if (entry.program.get() == Py_None) {
    *result = PyObject_Vectorcall(entry.target.get(), roots, static_cast<size_t>(n_roots), nullptr);
    return *result ? Outcome::Hit : Outcome::Error;
  }
  Program* program = reinterpret_cast<GuardProgram*>(entry.program.get())->program;
  if (!reinterpret_cast<GuardProgram*>(entry.program.get())->steps) return Outcome::Miss;
  std::vector<PyObject*> slots(program->n_outputs() + 1);  // the first is for the callee to use
  Outcome outcome = program->check(roots, slots.data() + 1);
  if (outcome != Outcome::Hit) return outcome;
  *result = PyObject_Vectorcall(entry.target.get(), slots.data() + 1, program->n_outputs() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  for (size_t i = 1; i < slots.size(); i++) Py_DECREF(slots[i]);
  return *result ? Outcome::Hit : Outcome::Error;
}

// Sets miss, failed, and finish with its type, from what the user of the dispatcher has given or ``load`` has returned.
bool set_handlers(PyObject* self, PyObject* miss, PyObject* failed, PyObject* pair) {
  PyObject *unfinished = nullptr, *finish = nullptr;
  if (pair != Py_None) {
    if (!PyTuple_Check(pair)) return refuse(PyExc_TypeError, "finish must be a tuple (type, callable), not %R", Py_TYPE(pair));
    if (!PyArg_ParseTuple(pair, "O!O", &PyType_Type, &unfinished, &finish)) return false;
  }
  as_dispatcher(self)->failed = failed == Py_None ? nullptr : Py_NewRef(failed);
  as_dispatcher(self)->unfinished = Py_XNewRef(unfinished);
  as_dispatcher(self)->finish = Py_XNewRef(finish);
  as_dispatcher(self)->miss = Py_NewRef(miss);
  return true;
}

// Calls ``load``. It is a call of its own, so that no frame of it lies between the caller and what ``miss`` runs.
bool load_handlers(PyObject* self) {
  if (!as_dispatcher(self)->load) return refuse(PyExc_RuntimeError, "the dispatcher has been cleared");
  Ref load = new_ref(as_dispatcher(self)->load);
  Ref loaded(PyObject_CallNoArgs(load.get()));
  if (!loaded) return false;
  // Another thread, or a signal's handler, may have made the first call meanwhile.
  if (as_dispatcher(self)->miss) return true;
  PyObject *miss, *failed, *pair;
  if (!PyTuple_Check(loaded.get())) return refuse(PyExc_TypeError, "load must return a tuple (miss, failed, finish)");
  if (!PyArg_ParseTuple(loaded.get(), "OOO", &miss, &failed, &pair)) return false;
  return set_handlers(self, miss, failed, pair);
}

PyObject* call_miss(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (!as_dispatcher(self)->miss && !load_handlers(self)) return nullptr;
  Ref positional(PyTuple_New(nargs)), keywords(PyDict_New());
  if (!positional || !keywords) return nullptr;
  for (Py_ssize_t i = 0; i < nargs; i++) PyTuple_SET_ITEM(positional.get(), i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
    if (PyDict_SetItem(keywords.get(), PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) return nullptr;
  }
  Ref miss = new_ref(as_dispatcher(self)->miss);
  return PyObject_CallFunctionObjArgs(miss.get(), positional.get(), keywords.get(), nullptr);
}

// Tells ``failed(error, program)`` of the exception that is set, which stays set unless ``failed`` raises one itself. Between the
// target and this no Python code runs, so that no asynchronous exception can come in between.
void tell_failed(PyObject* self, const Entry& entry) {
  if (!as_dispatcher(self)->failed) return;
  Ref failed = new_ref(as_dispatcher(self)->failed);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Ref answer(PyObject_CallFunctionObjArgs(failed.get(), value, entry.program.get(), nullptr));
  if (answer) {
    PyErr_Restore(type, value, traceback);
  } else {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  }
}

// Gives the call's result for a target's: if that is a pair with an ``unfinished`` one first, what ``finish`` makes of it,
// when nothing here holds what the target was given any more. Takes the reference to ``result``.
PyObject* finished(PyObject* self, PyObject* result) {
  if (!PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != 2) return result;
  if (reinterpret_cast<PyObject*>(Py_TYPE(PyTuple_GET_ITEM(result, 0))) != as_dispatcher(self)->unfinished) return result;
  Ref finish = new_ref(as_dispatcher(self)->finish), partial(result);
  return PyObject_CallOneArg(finish.get(), result);
}

PyObject* dispatcher_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  Py_ssize_t n_roots = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  std::shared_ptr<Entries> entries = *as_dispatcher(self)->entries;
  size_t recent = entries->recent;
  for (size_t turn = 0; turn <= entries->list.size(); turn++) {
    size_t index = turn == 0 ? recent : turn - 1;
    if ((turn > 0 && index == recent) || index >= entries->list.size()) continue;
    const Entry& entry = entries->list[index];
    if (entry.nargs != nargs || !same_names(entry.kwnames.get(), kwnames)) continue;
    PyObject* result = nullptr;
    Outcome outcome = try_entry(entry, args, n_roots, &result);
    if (outcome == Outcome::Miss) continue;
    entries->recent = index;
    if (outcome == Outcome::Hit) result = finished(self, result);
    if (!result) tell_failed(self, entry);
    return result;
  }
  return call_miss(self, args, nargs, kwnames);
}

PyObject* dispatcher_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"miss", "failed", "finish", "load", nullptr};
  PyObject *miss = nullptr, *failed = Py_None, *pair = Py_None, *load = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO$O", const_cast<char**>(names), &miss, &failed, &pair, &load)) return nullptr;
  if (!miss == !load) return PyErr_Format(PyExc_TypeError, "a dispatcher takes either miss or load");
  Ref self(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  as_dispatcher(self.get())->entries = new std::shared_ptr<Entries>(std::make_shared<Entries>());
  as_dispatcher(self.get())->vectorcall = dispatcher_call;
  as_dispatcher(self.get())->load = Py_XNewRef(load);
  if (miss && !set_handlers(self.get(), miss, failed, pair)) return nullptr;
  return self.release();
}

int dispatcher_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_dispatcher(self)->load);
  Py_VISIT(as_dispatcher(self)->miss);
  Py_VISIT(as_dispatcher(self)->failed);
  Py_VISIT(as_dispatcher(self)->unfinished);
  Py_VISIT(as_dispatcher(self)->finish);
  if (!as_dispatcher(self)->entries) return 0;
  for (const Entry& entry : (*as_dispatcher(self)->entries)->list) {
    Py_VISIT(entry.kwnames.get());
    Py_VISIT(entry.program.get());
    Py_VISIT(entry.target.get());
  }
  return 0;
}

int dispatcher_clear(PyObject* self) {
  Py_CLEAR(as_dispatcher(self)->load);
  Py_CLEAR(as_dispatcher(self)->miss);
  Py_CLEAR(as_dispatcher(self)->failed);
  Py_CLEAR(as_dispatcher(self)->unfinished);
  Py_CLEAR(as_dispatcher(self)->finish);
  std::shared_ptr<Entries> old = std::exchange(*as_dispatcher(self)->entries, std::make_shared<Entries>());
  return 0;
}

void dispatcher_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (as_dispatcher(self)->weakrefs) PyObject_ClearWeakRefs(self);
  Py_XDECREF(as_dispatcher(self)->load);
  Py_XDECREF(as_dispatcher(self)->miss);
  Py_XDECREF(as_dispatcher(self)->failed);
  Py_XDECREF(as_dispatcher(self)->unfinished);
  Py_XDECREF(as_dispatcher(self)->finish);
  delete as_dispatcher(self)->entries;
  Py_TYPE(self)->tp_free(self);
}

bool parse_entry(PyObject* tuple, Entry& entry) {
  PyObject *kwnames, *program, *target;
  if (!PyTuple_Check(tuple)) return refuse(PyExc_TypeError, "an entry must be a tuple (nargs, kwnames, guard_program, target)");
  if (!PyArg_ParseTuple(tuple, "nO!OO", &entry.nargs, &PyTuple_Type, &kwnames, &program, &target)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(kwnames, i))) return refuse(PyExc_TypeError, "keyword names must be strings");
  }
  if (program != Py_None) {
    if (Py_TYPE(program) != &GuardProgramType) {
      return refuse(PyExc_TypeError, "a native dispatcher needs native guard programs, not %R", Py_TYPE(program));
    }
    Py_ssize_t expected = reinterpret_cast<GuardProgram*>(program)->n_roots;
    Py_ssize_t given = entry.nargs + PyTuple_GET_SIZE(kwnames);
    if (expected != given) return refuse(PyExc_ValueError, "the guard program takes %zd roots, the call has %zd", expected, given);
  }
  entry.kwnames = new_ref(kwnames);
  entry.program = new_ref(program);
  entry.target = new_ref(target);
  return true;
}

PyObject* dispatcher_set_entries(PyObject* self, PyObject* tuples) {
  Ref given(PySequence_Tuple(tuples));
  if (!given) return nullptr;
  auto entries = std::make_shared<Entries>();
  entries->list.resize(PyTuple_GET_SIZE(given.get()));
  for (size_t i = 0; i < entries->list.size(); i++) {
    if (!parse_entry(PyTuple_GET_ITEM(given.get(), i), entries->list[i])) return nullptr;
  }
  // The old entries go only after the new ones are in place: what they held may run code as it goes.
  as_dispatcher(self)->entries->swap(entries);
  Py_RETURN_NONE;
}

PyObject* dispatcher_entries(PyObject* self, void*) {
  std::shared_ptr<Entries> entries = *as_dispatcher(self)->entries;
  PyObject* result = PyList_New(0);
  for (const Entry& entry : entries->list) {
    Ref tuple(result ? Py_BuildValue("nOOO", entry.nargs, entry.kwnames.get(), entry.program.get(), entry.target.get()) : nullptr);
    if (!tuple || PyList_Append(result, tuple.get()) < 0) Py_CLEAR(result);
  }
  return result;
}

PyObject* dispatcher_repr(PyObject* self) {
  return PyUnicode_FromFormat("<dispatcher: %zd entries>", static_cast<Py_ssize_t>((*as_dispatcher(self)->entries)->list.size()));
}

PyMethodDef methods[] = {
    {"set_entries", dispatcher_set_entries, METH_O, "set_entries(entries): replace all (nargs, kwnames, program, target)."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef getters[] = {
    {"entries", dispatcher_entries, nullptr, "the entries, in order", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

PyTypeObject DispatcherType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)  // which ends with a comma
    .tp_name = "fineline._native.Dispatcher",
    .tp_basicsize = sizeof(Dispatcher),
    .tp_dealloc = dispatcher_dealloc,
    .tp_vectorcall_offset = offsetof(Dispatcher, vectorcall),
    .tp_repr = dispatcher_repr,
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_doc = "Dispatcher(miss, failed=None, finish=None): calls the target of the first entry that fits and hits, else miss(args, kwargs).\n"
              "With finish=(type, callable), the callable makes the call's result of a target's that is a pair with an object\n"
              "of that type first. What either raises "
              "is told to failed(error, guard_program) before it leaves.\n"
              "With load, the first call of miss calls load(), which returns (miss, failed, finish).",
    .tp_traverse = dispatcher_traverse,
    .tp_clear = dispatcher_clear,
    .tp_weaklistoffset = offsetof(Dispatcher, weakrefs),
    .tp_methods = methods,
    .tp_getset = getters,
    .tp_new = dispatcher_new,
};

}  // namespace fineline
