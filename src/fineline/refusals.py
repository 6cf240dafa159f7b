"""The words for every id: of errors, of graph breaks, of what runs eagerly. Ids are stable; texts may get better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Refusal:
    """What an id stands for: a title of a few words, why fineline refuses, and the next step for the user."""

    title: str
    explanation: str
    next_step: str


REFUSALS: Mapping[str, Refusal] = MappingProxyType(
    {
        "FL100": Refusal("fineline refused", "", "Report it with the shortest function that shows it."),
        # -- events that refuse nothing -----------------------------------------------------------------------------
        "FL001": Refusal("captured", "These operators are one graph, which the backend compiled.", "Nothing needs doing."),
        "FL002": Refusal(
            "a program was kept",
            "Calls that its guards let through run it from now on.",
            "Nothing needs doing; fineline.explain(fn)(*args).program shows it.",
        ),
        "FL003": Refusal("rules were met", "They were in force in a capture.", "Nothing needs doing; fineline audit shows those that never match."),
        # -- capture --------------------------------------------------------------------------------------------
        "FL101": Refusal(
            "this cannot be captured",
            "Capture met something that it can neither run through nor split at.",
            "Keep the function out of the region with fineline.disable(fn), or take fullgraph=True away so that it may run eagerly.",
        ),
        "FL102": Refusal(
            "graph break where none is allowed",
            'The region was compiled with fullgraph=True, or breaks="none" holds here, and here a graph would end.',
            "Move this line out of the region, or take fullgraph=True away; fineline.explain(fn)(*args).breaks lists all breaks at once.",
        ),
        "FL103": Refusal(
            "a disabled function was reached",
            "The region was compiled with fullgraph=True, and a rule or mark makes this function run eagerly, which would split its graph.",
            "Take the rule or mark away, or take fullgraph=True away.",
        ),
        "FL104": Refusal(
            "too many programs in one region",
            "Each call that no program fits is captured again; this region has reached its recompile_limit.",
            "Hold constant what those guards name, or pass it as a tensor; otherwise raise recompile_limit.",
        ),
        "FL105": Refusal(
            "forbidden in a graph",
            "A rule says that meeting this during capture is an error.",
            "Move the call out of the region, or take the rule or mark away.",
        ),
        "FL106": Refusal(
            "a graph break that nobody asked for",
            'The region was compiled with breaks="declared": only what a rule of yours keeps out of the graph may break it.',
            'Write a rule for it, or compile with breaks="any".',
        ),
        "FL107": Refusal(
            "the contract of allow_in_graph is broken",
            "An opaque call takes and gives what graphs carry, uses no tensor that is not an argument, and changes nothing else.",
            "Pass what is missing as an argument, or take the rule or mark away so that capture looks inside.",
        ),
        "FL108": Refusal(
            "a capture under fail_on_recompile",
            "No program fits this call, and the stance says that nothing more is to be captured.",
            'Make such a call before set_stance("fail_on_recompile"), or hold constant what the guard names.',
        ),
        # -- arguments ------------------------------------------------------------------------------------------
        "FL109": Refusal(
            "a call would be captured again",
            "The option error_on_recompile (torch._dynamo.config.error_on_recompile) forbids it.",
            "The first guard that failed is named; hold that value constant, pass it as a tensor, or take the option away.",
        ),
        "FL201": Refusal(
            "not something that can be compiled",
            "fineline.compile takes a function, a method, another callable or an nn.Module.",
            "Pass the callable itself, not its result.",
        ),
        "FL202": Refusal(
            "unknown backend",
            "A backend is a registered name, or a callable (GraphModule, example_inputs) -> callable.",
            "Correct the name, install the plugin that brings it, or register it with fineline.register_backend.",
        ),
        "FL203": Refusal(
            "not a backend",
            "A backend is a registered name, or a callable (GraphModule, example_inputs) -> callable.",
            "Pass a name from fineline.list_backends(), or a callable.",
        ),
        "FL204": Refusal(
            "backend name taken",
            "Two backends cannot share one name, or a region would not say what it runs.",
            "Register it under another name: register_backend(fn, name=...).",
        ),
        "FL110": Refusal(
            "a size marked dynamic is a constant",
            "The captured code works for one value of the size alone, and a mark says that it varies.",
            "Change the line that fixes the size, or say maybe_mark_dynamic, or mark_static.",
        ),
        "FL217": Refusal(
            "no such dimension",
            "A mark is about one of the tensor's dimensions.",
            "Count from 0, or from the end with negative numbers.",
        ),
        "FL205": Refusal(
            "mode and options given together",
            "A mode is a named set of options, so the two could contradict each other.",
            "Give options alone; torch._inductor.list_mode_options(mode) shows what a mode stands for.",
        ),
        "FL206": Refusal(
            "mode or option not known to the backend",
            "The backend has no such mode or option, or the option's value is of another type.",
            "torch._inductor.list_mode_options() and torch._inductor.list_options() list what there is.",
        ),
        "FL208": Refusal(
            "not a value for this argument",
            "An argument that says how to compile takes certain values only, and two of them must not contradict each other.",
            "Give one of the values that are named here, or leave the argument out.",
        ),
        "FL207": Refusal(
            "not a stance",
            "The stance says what all compiled callables of the process do with a call that no program fits.",
            'Pass one of the names; force_backend goes with "default".',
        ),
        "FL211": Refusal(
            "this selects nothing",
            "A selector is a function, class, module, operator, or a text: a dotted name, a file, an operator, or a glob over these.",
            "Pass the object itself, or its name.",
        ),
        "FL212": Refusal(
            "a rule for what does not exist",
            "No module, file or operator has that name, so that the rule could never decide anything.",
            "Correct the name; an operator library has to be imported before its operators can be named.",
        ),
        "FL213": Refusal(
            "a Python function can't be disallowed",
            "Capture looks into Python functions, so that they are no nodes of a graph that could be left out.",
            "Say disable instead, or allow_in_graph first if it is to be one opaque call.",
        ),
        "FL214": Refusal(
            "not a substitute",
            "What takes the place of a function must take the same parameters.",
            "Give it the same signature.",
        ),
        "FL215": Refusal(
            "this policy file is wrong",
            "A policy file is TOML with the keys of fineline.Policy, under [tool.fineline] or at the top; each takes a text or an array of them.",
            "Correct the line.",
        ),
        "FL216": Refusal(
            "nothing to look into",
            "A trace rule has capture look inside of Python code; this is code in C, an operator, or part of fineline.",
            "Leave the rule out; allow is what keeps an operator in graphs that another rule takes out of them.",
        ),
        # -- backends -------------------------------------------------------------------------------------------
        "FL301": Refusal(
            "the backend failed",
            "The graph was captured, and the backend raised while it compiled it; the cause stands above.",
            'Compile with backend="eager" to see that the capture is sound, then with "aot_eager" to tell autograd from code generation.',
        ),
        "FL302": Refusal(
            "the backend did not return a callable",
            "A backend returns what runs the graph: a callable that takes the graph's inputs and returns its outputs.",
            "Return gm.forward, or a function of the same signature.",
        ),
        "FL303": Refusal(
            "the backend could not be loaded",
            "Its name is registered by an installed package, but importing it raised; the cause stands above.",
            "Repair or reinstall the package that the entry point names.",
        ),
        "FL304": Refusal(
            "a compiled graph failed",
            "The callable that the backend gave raised; the same code in Python did not, and gave the call its result.",
            'Try backend="eager": if that is right, report it to the makers of the backend.',
        ),
        # -- what splits a graph, or runs eagerly ----------------------------------------------------------------
        "FL429": Refusal(
            "a disallowed operator",
            "A rule says that it is in no graph; it runs eagerly, and capture goes on behind it.",
            "Take the rule away if the operator should be part of the graph.",
        ),
        "FL430": Refusal(
            "a block in which nothing is captured",
            "The code runs in a with disable() block.",
            "Take the block away if its contents should be captured.",
        ),
        "FL433": Refusal(
            "a call that compiles or marks something",
            "It makes a compiled callable, or changes what will be captured; it runs eagerly, between two graphs.",
            "Make the call outside of the region.",
        ),
        "FL400": Refusal(
            "a disabled function",
            "A rule or a mark says that this function is not to be captured.",
            "Take the rule or mark away if the function should be part of the graph.",
        ),
        "FL401": Refusal(
            "an explicit graph break",
            "The code asks for a graph break here.",
            "Take the graph_break() away if one graph is wanted.",
        ),
        "FL402": Refusal(
            "a function of another compiler",
            "It belongs to torch._dynamo, and does something there that has no meaning in a capture of fineline's.",
            "Move the call out of the region.",
        ),
        "FL403": Refusal(
            "a forced border",
            "The region was compiled with the option force_borders, which splits behind every operator, for tests.",
            "Take the option away.",
        ),
        "FL404": Refusal(
            "too few operators for a graph",
            "Between two graph breaks, entering a compiled graph costs more than these operators gain by it; they run one by one.",
            "Take one of the two breaks away.",
        ),
        "FL405": Refusal(
            "a coroutine or a generator",
            "Its frame outlives the call, so there is no call to capture as a whole; it runs eagerly.",
            "Compile the plain functions that it calls.",
        ),
        "FL406": Refusal(
            "calls run eagerly",
            "The region is in a state in which it captures nothing.",
            "See the reason; fineline.reset() starts all regions anew.",
        ),
        "FL407": Refusal(
            "captured again",
            "No program of this region fits the call; the first guard that failed tells why.",
            "If it happens often, hold that value constant, or pass it as a tensor.",
        ),
        "FL408": Refusal(
            "the call raised",
            "The user's code raised while it was captured, so that there is no program to keep of it.",
            "Nothing needs doing if the exception was meant; the next call is captured anew.",
        ),
        "FL409": Refusal(
            "a value that no program can make again",
            "It was made in the captured code, is still needed behind it, and is more than containers, attributes and tensors.",
            "Make the object outside of the region and pass it in, or use it up before the place named.",
        ),
        "FL410": Refusal(
            "an unknown C function",
            "Its code can't be seen, so nobody can tell what it reads or changes; it is called anew each time, between two graphs.",
            "Compute the value outside of the region, or write the call in PyTorch's operators.",
        ),
        "FL411": Refusal(
            "a C function with an effect",
            "It does something (output, input, a change of the process) that has to happen on every call, not at capture alone.",
            "Move the call out of the region, or behind its last operator.",
        ),
        "FL412": Refusal(
            "C code that calls back into Python",
            "Python code that C calls, in the middle of its work, is not seen by the capture; the call runs eagerly as a whole.",
            "Write the call as a plain Python loop or a comparison of plain values.",
        ),
        "FL413": Refusal(
            "a container that no guard covers",
            "A guard for its contents would have to run the user's code, or could not tell a change.",
            "Use a list, dict or tuple of plain values in its place.",
        ),
        "FL414": Refusal(
            "a change of an object of unknown origin",
            "The program could not find this object again on the next call, so the change is made eagerly.",
            "Pass the object to the function, or make it inside.",
        ),
        "FL415": Refusal(
            "iteration by C code",
            "What it gives, and how long, is decided in C code that fineline can't see.",
            "Turn it into a list outside of the region.",
        ),
        "FL416": Refusal(
            "an iterator from outside",
            "It was under way before the call, so its items differ from call to call.",
            "Take the item outside of the region and pass it in.",
        ),
        "FL417": Refusal(
            "text, hash or size of an object that differs by call",
            "The result depends on a tensor's values or on an address, which no guard can hold constant.",
            "Do this outside of the region, for example in logging code behind it.",
        ),
        "FL418": Refusal(
            "a function with a cache",
            "What it returns depends on the calls before, which no guard covers.",
            "Call it outside of the region, or call the function below the cache.",
        ),
        "FL419": Refusal(
            "a key with its own __hash__ or __eq__",
            "Looking it up runs the user's code from C; this call runs eagerly from here on.",
            "Use a plain value as the key.",
        ),
        "FL420": Refusal(
            "this place runs eagerly",
            "An earlier capture could not be kept because of it; it runs eagerly since, between two graphs.",
            "See the event of that capture; fineline.explain(fn)(*args) names it.",
        ),
        "FL421": Refusal(
            "a tensor of another class is made",
            "The constructor of this class is C code that no graph can hold.",
            "Make it outside of the region, or use a function such as torch.tensor.",
        ),
        "FL422": Refusal(
            "an object whose memory C lays out",
            "Its constructor is C code that fineline can't run through.",
            "Make the object outside of the region and pass it in.",
        ),
        "FL423": Refusal(
            "a class is made",
            "A new class on each call can't be part of a program.",
            "Define the class outside of the function.",
        ),
        "FL424": Refusal(
            "an exception object is raised again",
            "It existed before the call, and raising it changes it.",
            "Raise a new exception.",
        ),
        "FL425": Refusal(
            "an import that runs a module",
            "The module is not loaded yet, and its code would run in the middle of the capture.",
            "Import it at the top of the file.",
        ),
        "FL426": Refusal(
            "an exception of the moment",
            "An interrupt, a lack of memory or the recursion limit depends on the moment of the call; later calls are to meet their own.",
            "Nothing needs doing; the next call is captured anew.",
        ),
        "FL427": Refusal(
            "a long loop without tensors",
            "Unrolling it would take longer than running it; the function that it stands in runs eagerly from the next call on.",
            "Move the loop out of the region, or leave it: CPython runs it.",
        ),
        "FL428": Refusal(
            "too many graph breaks in one call",
            "The call was cut into hundreds of pieces, as a loop around a graph break does; the rest of it runs eagerly.",
            "Move what breaks the graph out of the loop, or compile the loop's body instead of the loop.",
        ),
        "FL431": Refusal(
            "an attribute that is read in its own way",
            "The read goes through C code, or through state that no guard covers.",
            "Read it outside of the region and pass the value in.",
        ),
        "FL432": Refusal(
            "an attribute that is set in its own way",
            "The write goes through C code, or to a class or function that others see.",
            "Write it outside of the region.",
        ),
        # -- tensors ---------------------------------------------------------------------------------------------
        "FL434": Refusal(
            "a constant with a gradient history",
            "A backward pass goes through what computed it, once; the next call needs a history of its own, so that it is called each time.",
            "Let the function detach what it returns, or take the mark away.",
        ),
        "FL501": Refusal(
            "PyTorch's state is set to something not constant",
            "A graph holds constants for grad mode, autocast and the like.",
            "Pass a plain bool, number or dtype.",
        ),
        "FL502": Refusal(
            "a tensor's values are read",
            "What follows depends on numbers that differ from call to call; it is decided eagerly, between two graphs.",
            "Use torch.where, torch.cond or a mask in place of the branch, or keep the number a tensor.",
        ),
        "FL503": Refusal(
            "an effect that no graph can hold",
            "The function changes or asks for something besides its tensors (devices, processes, files, autograd's engine).",
            "Move the call out of the region.",
        ),
        "FL504": Refusal(
            "an argument that no graph can hold",
            "Graphs carry tensors, numbers, text, dtypes, devices, and lists, tuples and dicts of these.",
            "Pass the tensors and numbers themselves.",
        ),
        "FL505": Refusal(
            "an operator that gives a number",
            "The number may depend on the tensor's values; from the next call on this place runs eagerly, between two graphs.",
            "Keep the result a tensor, or compute the number outside of the region.",
        ),
        "FL506": Refusal(
            "an operator that gives an object",
            "A graph gives tensors; from the next call on this place runs eagerly, between two graphs.",
            "Use an operator that gives tensors.",
        ),
        "FL507": Refusal(
            "an attribute of a tensor that C keeps",
            "Whether a later call finds the same can't be guarded, or the change can't be part of a graph.",
            "Read or set it outside of the region, or call detach() or an operator in its place.",
        ),
        "FL508": Refusal(
            "a shape that depends on values",
            "How large the result is can be known only by running it; it runs eagerly, between two graphs.",
            "Use a form with a fixed size: torch.where with three arguments, a mask, or topk.",
        ),
        "FL509": Refusal(
            "an answer that no guard covers",
            "The function looks at more of the tensor than its class, sizes, strides, dtype, device and flags.",
            "Ask outside of the region and pass the answer in.",
        ),
        "FL511": Refusal(
            "an autograd.Function that reads more than its arguments",
            "Its forward or backward uses variables from outside, which a graph would hold constant.",
            "Pass what it reads as arguments to apply.",
        ),
        "FL513": Refusal(
            "a change of a tensor's metadata",
            "The tensor existed before the call, and its sizes, strides or memory would be others behind it; or a leaf of autograd is made.",
            "Change the tensor outside of the region, or work on a new one.",
        ),
        "FL514": Refusal(
            "an effect behind a branch that was taken for granted",
            "The graph would write, or call code that may do more than compute, even if the branch went the way that raises.",
            "Do it before the check; a write may go into a new tensor.",
        ),
        "FL515": Refusal(
            "fake mode stops here",
            "Without the numbers in the tensors the capture can't go on just here; the call is captured on its real values.",
            'Nothing has to be done; under first_call="live" the call is captured so from the start.',
        ),
        "FL516": Refusal(
            "an operator without a kernel for fake tensors",
            "The sizes of its result are not known before it runs.",
            "Register a fake kernel for it: torch.library.register_fake.",
        ),
        "FL517": Refusal(
            "sizes that no guard can check",
            "What the captured code assumes of the sizes depends on more than its inputs.",
            "Nothing has to be done: the call is captured with its sizes as constants.",
        ),
        "FL518": Refusal(
            "a decision on a number that only the graph knows",
            "The number was read from a tensor and is a symbol of the graph; which way the code goes, or what it makes, depends on its value.",
            "Say what is known of it with torch._check(n > 0), or decide inside of the graph, with torch.where or torch.cond.",
        ),
        "FL519": Refusal(
            "a float that the backend can't take as one that varies",
            "AOTAutograd has such a float in sums, products and comparisons; of another operator it needs the value.",
            "Nothing has to be done: each value is captured by itself. Where there are many, pass the number as a tensor.",
        ),
        "FL520": Refusal(
            "a function that no graph can hold",
            "An operator that runs functions of yours takes them as graphs. One of them does more than compute tensors from tensors.",
            "Let the function compute only; effects and values read go before or behind the call.",
        ),
        "FL521": Refusal(
            "a function that traces by itself",
            "It runs your code on tensors of its own, or makes a program of it in its own way, which no graph can hold.",
            "Call it outside of the region; the other transforms of torch.func are captured.",
        ),
        "FL522": Refusal(
            "a layout that the backend can't compile",
            "The backend failed on a graph with sparse or nested tensors; from then on, operators on these run eagerly, between two graphs.",
            'Nothing has to be done; backend="aot_eager" takes most sparse tensors, and PyTorch has torch.jagged for nested ones.',
        ),
        # -- export ---------------------------------------------------------------------------------------------
        "FL601": Refusal(
            "this can't be exported",
            "An exported graph stands alone: it does all that the call does, from the call's arguments and the module's tensors.",
            "Change what is named, or compile instead of export.",
        ),
        "FL602": Refusal(
            "an argument of export that needs another",
            "Decompositions and tracing modes are about ATen operators.",
            "Add aten_graph=True.",
        ),
        "FL603": Refusal(
            "a result that no graph can give",
            "A graph gives tensors that it makes, its arguments, constants, and containers, dataclasses and pytree nodes of these.",
            "Return the tensors in a tuple, list, dict or dataclass, or register the class with torch.utils._pytree.",
        ),
        "FL604": Refusal(
            "an effect that no graph has",
            "A graph can write into tensors and buffers; it sets no attribute, and changes no list or dict.",
            "Return the value instead, keep it in a buffer, or leave the write out while torch.compiler.is_exporting().",
        ),
        "FL605": Refusal(
            "a node that needs this process",
            "It calls code that is made at capture, which no other process has.",
            "Export under torch.no_grad(), where no backward is needed, or with aten_graph=True.",
        ),
        "FL606": Refusal(
            "the ATen graph can't be traced",
            "The captured graph runs once more, under the decompositions; that failed.",
            "Export without aten_graph=True, or take the decomposition that raised out of the table.",
        ),
        "FL607": Refusal(
            "constraints that are given the old way",
            "PyTorch's constraint objects exist no longer.",
            "Mark the sizes that vary: fineline.mark_dynamic(tensor, index, min=..., max=...).",
        ),
        # -- fineline itself ------------------------------------------------------------------------------------
        "FL901": Refusal(
            "fineline met a state it cannot explain",
            "A check inside fineline failed. This is a defect of fineline, not of the code it captured.",
            "Report it with this text; until then keep the function out of the region with fineline.disable(fn).",
        ),
    }
)
