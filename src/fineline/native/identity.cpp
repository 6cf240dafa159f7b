// Tables whose keys are objects by identity: what fineline/identity.py does in Python, and describes.
//
// A table is laid out as CPython's dict: entries in the order of insertion, and an index that an address leads to.
#include "identity.h"

namespace fineline {
namespace {

struct Entry {
  PyObject* key;    // null: deleted
  PyObject* value;  // null in a set
};

// Places of the index that no entry is at.
constexpr int32_t kFree = -1, kDeleted = -2;
constexpr int kFewestBits = 3;

struct Table {
  PyObject_HEAD
  Entry* entries;
  int32_t* index;   // lies behind the entries, in one block with them
  Py_ssize_t used;  // entries, with the deleted ones
  Py_ssize_t size;  // ... without them
  int bits;         // the index has 2 ** bits places; 0: there is none
};

Table* table_of(PyObject* self) { return reinterpret_cast<Table*>(self); }

// At least a third of the index stays free, which ends each search.
Py_ssize_t room(int bits) { return bits == 0 ? 0 : (Py_ssize_t{1} << bits) * 2 / 3; }

size_t first_place(const PyObject* key, int bits) {
  return (reinterpret_cast<uintptr_t>(key) >> 4) * uint64_t{0x9E3779B97F4A7C15} >> (64 - bits);
}

// The place of the index where `key` is; -1: it is not in the table.
inline Py_ssize_t find(const Table* table, const PyObject* key) {
  if (table->size == 0) return -1;
  size_t mask = (size_t{1} << table->bits) - 1;
  for (size_t place = first_place(key, table->bits);; place = (place + 1) & mask) {
    int32_t at = table->index[place];
    if (at >= 0 && table->entries[at].key == key) return place;
    if (at == kFree) return -1;
  }
}

inline Entry* find_entry(const Table* table, const PyObject* key) {
  Py_ssize_t place = find(table, key);
  return place < 0 ? nullptr : &table->entries[table->index[place]];
}

void note_place(Table* table, int32_t at) {
  size_t mask = (size_t{1} << table->bits) - 1;
  size_t place = first_place(table->entries[at].key, table->bits);
  while (table->index[place] != kFree) place = (place + 1) & mask;
  table->index[place] = at;
}

// Makes room for more entries, and forgets the deleted ones.
bool grow(Table* table) {
  int bits = kFewestBits;
  while ((Py_ssize_t{1} << bits) <= table->size * 3) bits++;
  size_t places = size_t{1} << bits, bytes = room(bits) * sizeof(Entry);
  auto block = static_cast<char*>(bits < 31 ? PyMem_Malloc(bytes + places * sizeof(int32_t)) : nullptr);
  if (block == nullptr) return PyErr_NoMemory() != nullptr;
  Entry* old = table->entries;
  Py_ssize_t used = 0;
  auto entries = reinterpret_cast<Entry*>(block);
  for (Py_ssize_t i = 0; i < table->used; i++) {
    if (old[i].key != nullptr) entries[used++] = old[i];
  }
  table->entries = entries;
  table->index = reinterpret_cast<int32_t*>(block + bytes);
  table->bits = bits;
  table->used = used;
  std::memset(table->index, 0xFF, places * sizeof(int32_t));
  static_assert(kFree == -1);
  for (Py_ssize_t i = 0; i < used; i++) note_place(table, static_cast<int32_t>(i));
  PyMem_Free(old);
  return true;
}

// Adds a key that is not in the table.
template <bool Owning>
bool insert(Table* table, PyObject* key, PyObject* value) {
  if (table->used == room(table->bits) && !grow(table)) return false;
  table->entries[table->used] = {Owning ? Py_NewRef(key) : key, Py_XNewRef(value)};
  note_place(table, static_cast<int32_t>(table->used++));
  table->size++;
  return true;
}

// Adds a key, or gives it another value.
template <bool Owning>
bool assign(Table* table, PyObject* key, PyObject* value) {
  Entry* entry = find_entry(table, key);
  if (entry == nullptr) return insert<Owning>(table, key, value);
  if (value != nullptr) Py_SETREF(entry->value, Py_NewRef(value));
  return true;
}

// Takes out the entry of a place; -> its value, owned by the caller. The key goes with `gone`.
template <bool Owning>
PyObject* take(Table* table, Py_ssize_t place, Ref& gone) {
  Entry& entry = table->entries[table->index[place]];
  table->index[place] = kDeleted;
  if (Owning) gone.reset(entry.key);
  entry.key = nullptr;
  table->size--;
  return std::exchange(entry.value, nullptr);
}

// What goes here may run code that reads the table, or fills it again: it is empty before anything goes.
template <bool Owning>
int clear_table(PyObject* self) {
  Table* table = table_of(self);
  Entry* entries = std::exchange(table->entries, nullptr);
  Py_ssize_t used = std::exchange(table->used, 0);
  table->index = nullptr;
  table->size = table->bits = 0;
  for (Py_ssize_t i = 0; i < used; i++) Py_XDECREF(entries[i].value);
  for (Py_ssize_t i = used; Owning && i > 0; i--) Py_XDECREF(entries[i - 1].key);
  PyMem_Free(entries);
  return 0;
}

template <bool Owning>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Table* table = table_of(self);
  for (Py_ssize_t i = 0; i < table->used; i++) {
    if (Owning) Py_VISIT(table->entries[i].key);
    Py_VISIT(table->entries[i].value);
  }
  return 0;
}

template <bool Owning>
void deallocate(PyObject* self) {
  if (PyType_IS_GC(Py_TYPE(self))) PyObject_GC_UnTrack(self);
  clear_table<Owning>(self);
  Py_TYPE(self)->tp_free(self);
}

Py_ssize_t length(PyObject* self) { return table_of(self)->size; }

int contains(PyObject* self, PyObject* key) { return find(table_of(self), key) >= 0; }

// Runs no code of the key's, and does not keep it alive.
void missing(PyObject* key) { PyErr_Format(PyExc_KeyError, "an object of type %.100s", Py_TYPE(key)->tp_name); }

PyObject* subscript(PyObject* self, PyObject* key) {
  Entry* entry = find_entry(table_of(self), key);
  if (entry != nullptr) return Py_NewRef(entry->value);
  missing(key);
  return nullptr;
}

template <bool Owning>
int assign_subscript(PyObject* self, PyObject* key, PyObject* value) {
  if (value != nullptr) return assign<Owning>(table_of(self), key, value) ? 0 : -1;
  Py_ssize_t place = find(table_of(self), key);
  if (place < 0) return missing(key), -1;
  Ref gone;
  Ref old(take<Owning>(table_of(self), place, gone));
  return 0;
}

bool takes(const char* name, Py_ssize_t nargs, Py_ssize_t least) {
  return (nargs >= least && nargs <= 2) || refuse(PyExc_TypeError, "%s() takes %zd or 2 arguments, not %zd", name, least, nargs);
}

PyObject* get(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  if (!takes("get", nargs, 1)) return nullptr;
  Entry* entry = find_entry(table_of(self), args[0]);
  return Py_NewRef(entry != nullptr ? entry->value : nargs == 2 ? args[1] : Py_None);
}

template <bool Owning>
PyObject* set_default(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  if (!takes("setdefault", nargs, 2)) return nullptr;
  Entry* entry = find_entry(table_of(self), args[0]);
  if (entry != nullptr) return Py_NewRef(entry->value);
  return insert<Owning>(table_of(self), args[0], args[1]) ? Py_NewRef(args[1]) : nullptr;
}

template <bool Owning>
PyObject* pop(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  if (!takes("pop", nargs, 1)) return nullptr;
  Py_ssize_t place = find(table_of(self), args[0]);
  if (place < 0 && nargs == 2) return Py_NewRef(args[1]);
  if (place < 0) return missing(args[0]), nullptr;
  Ref gone;
  return take<Owning>(table_of(self), place, gone);
}

template <bool Owning>
PyObject* add(PyObject* self, PyObject* key) {
  if (!assign<Owning>(table_of(self), key, nullptr)) return nullptr;
  Py_RETURN_NONE;
}

template <bool Owning>
PyObject* discard(PyObject* self, PyObject* key) {
  Py_ssize_t place = find(table_of(self), key);
  Ref gone;
  if (place >= 0) take<Owning>(table_of(self), place, gone);
  Py_RETURN_NONE;
}

template <bool Owning>
PyObject* clear(PyObject* self, PyObject*) {
  clear_table<Owning>(self);
  Py_RETURN_NONE;
}

// A list of what `item` makes, as a new reference, of each entry.
template <typename Item>
PyObject* listed(PyObject* self, Item item) {
  Ref list(PyList_New(0));
  for (Py_ssize_t i = 0; list && i < table_of(self)->used; i++) {
    const Entry& entry = table_of(self)->entries[i];
    if (entry.key == nullptr) continue;
    Ref made(item(entry));
    if (!made || PyList_Append(list.get(), made.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* values(PyObject* self, PyObject*) {
  return listed(self, [](const Entry& entry) { return Py_NewRef(entry.value); });
}

PyObject* items(PyObject* self, PyObject*) {
  return listed(self, [](const Entry& entry) {
    Ref key = new_ref(entry.key), value = new_ref(entry.value);  // a collection may change the table
    return PyTuple_Pack(2, key.get(), value.get());
  });
}

PyObject* iterate(PyObject* self) {
  Ref keys(listed(self, [](const Entry& entry) { return Py_NewRef(entry.key); }));
  return keys ? PyObject_GetIter(keys.get()) : nullptr;
}

// Adds what another table of the same kind holds; of one that borrows its keys, too.
template <bool Owning>
bool merge(Table* table, PyObject* other) {
  for (Py_ssize_t i = 0; i < table_of(other)->used; i++) {
    const Entry& entry = table_of(other)->entries[i];
    Ref value = new_ref(entry.value);  // it must not go while the table gets it
    if (entry.key != nullptr && !assign<Owning>(table, entry.key, value.get())) return false;
  }
  return true;
}

template <bool Owning, bool Mapping>
bool merge_all(Table* table, PyObject* objects) {
  Ref iterator(PyObject_GetIter(objects));
  if (!iterator) return false;
  while (Ref item{PyIter_Next(iterator.get())}) {
    bool pair = Mapping && PyTuple_CheckExact(item.get()) && PyTuple_GET_SIZE(item.get()) == 2;
    if (Mapping && !pair) return refuse(PyExc_TypeError, "a map is made of pairs, not of %.100s", Py_TYPE(item.get())->tp_name);
    PyObject* key = pair ? PyTuple_GET_ITEM(item.get(), 0) : item.get();
    if (!assign<Owning>(table, key, pair ? PyTuple_GET_ITEM(item.get(), 1) : nullptr)) return false;
  }
  return PyErr_Occurred() == nullptr;
}

template <bool Owning, bool Mapping>
struct Kind {
  static PyTypeObject type;

  static bool add_from(PyObject* self, PyObject* other) {
    if (PyObject_TypeCheck(other, &type)) return merge<Owning>(table_of(self), other);
    return merge_all<Owning, Mapping>(table_of(self), other);
  }

  static PyObject* update(PyObject* self, PyObject* other) {
    if (!add_from(self, other)) return nullptr;
    Py_RETURN_NONE;
  }

  static PyObject* copy(PyObject* self, PyObject*) {
    Ref made(type.tp_alloc(&type, 0));
    if (!made || !merge<Owning>(table_of(made.get()), self)) return nullptr;
    return made.release();
  }

  static int initialise(PyObject* self, PyObject* args, PyObject* kwargs) {
    PyObject* given = nullptr;
    if (kwargs != nullptr && PyDict_GET_SIZE(kwargs) != 0) {
      return refuse(PyExc_TypeError, "%.100s() takes no keyword arguments", Py_TYPE(self)->tp_name), -1;
    }
    if (!PyArg_UnpackTuple(args, Py_TYPE(self)->tp_name, 0, 1, &given)) return -1;
    return given == nullptr || add_from(self, given) ? 0 : -1;
  }

};

PyTypeObject* const kAddressSet = &Kind<false, false>::type;

bool is_address_set(PyObject* object, const char* name) {
  if (PyObject_TypeCheck(object, kAddressSet)) return true;
  return refuse(PyExc_TypeError, "%s() takes an AddressSet, not %.100s", name, Py_TYPE(object)->tp_name);
}

// A set of those addresses of a table that another one has too, if there is another one.
PyObject* addresses_in(PyObject* self, const Table* other) {
  Ref made(kAddressSet->tp_alloc(kAddressSet, 0));
  for (Py_ssize_t i = 0; made && i < table_of(self)->used; i++) {
    PyObject* key = table_of(self)->entries[i].key;
    if (key == nullptr || (other != nullptr && find(other, key) < 0)) continue;
    if (!insert<false>(table_of(made.get()), key, nullptr)) return nullptr;
  }
  return made.release();
}

PyObject* addresses(PyObject* self, PyObject*) { return addresses_in(self, nullptr); }

PyObject* intersection(PyObject* self, PyObject* other) {
  return is_address_set(other, "intersection") ? addresses_in(self, table_of(other)) : nullptr;
}

PyObject* at(PyObject* self, PyObject* addresses) {
  if (!is_address_set(addresses, "at")) return nullptr;
  Ref list(PyList_New(0));
  const Table* asked = table_of(addresses);
  for (Py_ssize_t i = 0; list && i < asked->used; i++) {
    const Entry* entry = asked->entries[i].key == nullptr ? nullptr : find_entry(table_of(self), asked->entries[i].key);
    if (entry != nullptr && PyList_Append(list.get(), entry->value) < 0) return nullptr;
  }
  return list.release();
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

template <bool Owning, bool Mapping>
PyTypeObject Kind<Owning, Mapping>::type = {PyVarObject_HEAD_INIT(nullptr, 0)};

using IdentityMap = Kind<true, true>;
using IdentitySet = Kind<true, false>;
using AddressMap = Kind<false, true>;
using AddressSet = Kind<false, false>;

PyMethodDef identity_map_methods[] = {
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, nullptr},
    {"at", at, METH_O, nullptr},
    {"clear", clear<true>, METH_NOARGS, nullptr},
    {"copy", IdentityMap::copy, METH_NOARGS, nullptr},
    {"get", fast(get), METH_FASTCALL, nullptr},
    {"items", items, METH_NOARGS, nullptr},
    {"pop", fast(pop<true>), METH_FASTCALL, nullptr},
    {"setdefault", fast(set_default<true>), METH_FASTCALL, nullptr},
    {"update", IdentityMap::update, METH_O, nullptr},
    {"values", values, METH_NOARGS, nullptr},
    {}};

PyMethodDef identity_set_methods[] = {
    {"add", add<true>, METH_O, nullptr},
    {"clear", clear<true>, METH_NOARGS, nullptr},
    {"copy", IdentitySet::copy, METH_NOARGS, nullptr},
    {"discard", discard<true>, METH_O, nullptr},
    {"update", IdentitySet::update, METH_O, nullptr},
    {}};

PyMethodDef address_map_methods[] = {
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, nullptr},
    {"addresses", addresses, METH_NOARGS, nullptr},
    {"clear", clear<false>, METH_NOARGS, nullptr},
    {"copy", AddressMap::copy, METH_NOARGS, nullptr},
    {"get", fast(get), METH_FASTCALL, nullptr},
    {"pop", fast(pop<false>), METH_FASTCALL, nullptr},
    {"setdefault", fast(set_default<false>), METH_FASTCALL, nullptr},
    {"update", AddressMap::update, METH_O, nullptr},
    {"values", values, METH_NOARGS, nullptr},
    {}};

PyMethodDef address_set_methods[] = {
    {"add", add<false>, METH_O, nullptr},
    {"clear", clear<false>, METH_NOARGS, nullptr},
    {"copy", AddressSet::copy, METH_NOARGS, nullptr},
    {"discard", discard<false>, METH_O, nullptr},
    {"intersection", intersection, METH_O, nullptr},
    {"update", AddressSet::update, METH_O, nullptr},
    {}};

PySequenceMethods as_container = {length, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, contains};

template <bool Owning, bool Mapping>
bool add_type(PyObject* module, const char* name, PyMethodDef* methods) {
  static PyMappingMethods as_map = {length, subscript, assign_subscript<Owning>};
  PyTypeObject& type = Kind<Owning, Mapping>::type;
  type.tp_name = name;
  type.tp_basicsize = sizeof(Table);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_dealloc = deallocate<Owning>;
  type.tp_as_sequence = &as_container;
  type.tp_methods = methods;
  type.tp_new = PyType_GenericNew;
  type.tp_init = Kind<Owning, Mapping>::initialise;
  type.tp_clear = clear_table<Owning>;
  if (Mapping) type.tp_as_mapping = &as_map;
  if (Owning) type.tp_iter = iterate;
  if (Owning || Mapping) {
    type.tp_flags |= Py_TPFLAGS_HAVE_GC;
    type.tp_traverse = traverse<Owning>;
  } else {
    type.tp_flags |= Py_TPFLAGS_BASETYPE;
  }
  return PyModule_AddType(module, &type) == 0;
}

}  // namespace

bool add_identity_types(PyObject* module) {
  return add_type<true, true>(module, "fineline.identity.IdentityMap", identity_map_methods) &&
      add_type<true, false>(module, "fineline.identity.IdentitySet", identity_set_methods) &&
      add_type<false, true>(module, "fineline.identity.AddressMap", address_map_methods) &&
      add_type<false, false>(module, "fineline.identity.AddressSet", address_set_methods);
}

}  // namespace fineline
