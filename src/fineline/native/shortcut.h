// A flat table of memory words that, unchanged, prove that the steps of a quiet pass still hold.
//
// After a full pass every register is one of:
//   stable   proved, by a word before it, to be the very object of that pass: pins, what a type or a dict of unchanged
//            version holds, items of stable tuples;
//   pointed  proved to be alive and at the same address, but maybe another object there: roots, items of lists,
//            contents of cells and slots, instance dicts;
//   dynamic  evaluated anew in each pass: what is reached from roots that differ from call to call.
// What cannot change on a stable object needs no word. What is read of a pointed one always has one, or is evaluated.
//
// Words stand in the order of the steps, so whatever a word lies in has been proved alive by the words before it, and nothing that
// could free it runs in between: a pass runs no Python code and keeps the GIL.
#pragma once

#include <vector>

#include "dict_stamp.h"
#include "object.h"

namespace fineline {

class Program;

class Shortcut {
 public:
  // From the registers of a quiet pass that has just ended, with nothing run since.
  Shortcut(Program& program, PyObject* const* registers);

  bool fits(PyObject* const* roots) const;

  // Pass: all quiet steps hold, and `registers` has their results. Fail: one does not. Python: the table cannot tell.
  Verdict run(Program& program, PyObject* const* roots);

  struct Root {
    int position;
    int step;
    PyObject* object;
  };
  std::vector<Root> roots;
  std::vector<PyObject*> registers;
  int blamed = -1;  // the step whose word made the last `run` give up
  size_t size() const { return words_.size(); }
  bool known(int reg) const { return states_[reg] != State::Dynamic; }

 private:
  enum class State : uint8_t { Dynamic, Pointed, Stable };
  struct Word {
    const void* at;
    uint64_t expected;
  };
  struct Origin {
    int step;  // that made the word necessary
    int dict;  // the register of the dict whose version the word is, or -1
  };
  struct TypeVersion {
    PyTypeObject* type;
    unsigned version;
  };
  // A `storages` step: the keys of the tensors that the table knows, which words watch over, and the others' positions.
  struct Sharing {
    int step;
    std::vector<const void*> keys;
    std::vector<size_t> unknown;
  };
  friend class ShortcutBuilder;

  static Word* first_changed(Word* word, const Word* end);
  Verdict run_steps(Program& program, const std::vector<int>& steps, PyObject* const* roots);
  bool shared_alike(Program& program, Sharing& sharing);
  Verdict confirm_steps(Program& program, const std::vector<int>& numbers);
  Verdict confirm_step(Program& program, int number);
  Verdict confirm(Program& program, int reg);

  std::vector<TypeVersion> versions_;
  std::vector<Word> words_;
  std::vector<Origin> origins_;        // by word
  std::vector<int> word_of_dict_;      // by register
  std::vector<DictStamp> stamps_;      // by register: what those words are
  std::vector<Sharing> sharings_;
  std::vector<int> early_;             // steps to evaluate that need no register of the table
  std::vector<int> late_;              // the others
  std::vector<State> states_;          // by register
  std::vector<PyTypeObject*> types_;   // by register: the type at the time, only ever compared
};

}  // namespace fineline
