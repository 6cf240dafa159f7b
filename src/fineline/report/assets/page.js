"use strict";
// The page's script: shows the data of the element "data". All texts go into the document as text, never as HTML.
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const KINDS = [
    { name: "captured", glyph: "", tells: "traced into; its operators are in a graph" },
    { name: "opaque", glyph: "▣", tells: "one call in a graph; its code is not looked into" },
    { name: "eager by rule", glyph: "§", tells: "runs in Python, because a rule or mark says so" },
    { name: "eager for a reason", glyph: "!", tells: "runs in Python, because it cannot be captured" },
    { name: "constant", glyph: "=", tells: "ran at capture; its result is a constant" },
  ];
  const ROW = 22;
  // Narrower frames are drawn together.
  const NARROWEST = 2;
  // Eager frames are seen even if they are narrower.
  const MARK = 5;
  const MOST_ROWS = 400;
  const byId = (id) => document.getElementById(id);
  const view = byId("view"), detail = byId("detail"), search = byId("search");
  const state = { fn: null, tab: "calls", words: [], graph: 0, program: 0, measure: "time", sort: "cost", all: false, selected: 0, zoom: 0 };

  // -- making elements ----------------------------------------------------------------------------------------------
  function make(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) {
      if (name === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
      else if (name === "style") Object.assign(element.style, value);
      else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  }
  // Whether a key presses what has the focus, as it does a button; then the key does nothing else.
  function presses(event) {
    const pressed = event.key === "Enter" || event.key === " ";
    if (pressed) event.preventDefault();
    return pressed;
  }
  // Makes elements anew, and keeps the focus: on the element with the same key, or else on one that shows the result.
  function keepFocus(renew, result) {
    const before = document.activeElement;
    renew();
    if (before === document.body || before.isConnected) return;
    const same = before.dataset.key && document.querySelector(`[data-key="${before.dataset.key}"]`);
    (same || result()).focus({ preventScroll: true });
  }
  const link = (text, run) => make("button", { class: "link", type: "button", on: { click: run } }, text);
  const grouped = (n) => n.toLocaleString("en");
  const plural = (n, noun, several = `${noun}s`) => `${grouped(n)} ${n === 1 ? noun : several}`;

  function duration(microseconds) {
    if (microseconds >= 1e6) return `${(microseconds / 1e6).toFixed(2)} s`;
    if (microseconds >= 1e3) return `${(microseconds / 1e3).toFixed(microseconds >= 1e5 ? 0 : 1)} ms`;
    return `${microseconds.toFixed(microseconds >= 10 ? 0 : 1)} µs`;
  }
  const cost = (nanoseconds) => (nanoseconds < 0 ? "–" : nanoseconds >= 1000 ? `${(nanoseconds / 1000).toFixed(1)} µs` : `${Math.round(nanoseconds)} ns`);
  const fileOf = (place) => (place && place[0] >= 0 ? DATA.sources[place[0]] : null);
  const where = (place) => (fileOf(place) ? `${fileOf(place).name}:${place[1]}` : "");
  // A place for tables: the end of a long path.
  const shortPlace = (place) => {
    const parts = where(place).split(/(?=[\\/])/);
    while (parts.length > 1 && parts.join("").length > 26) parts.shift();
    const text = parts.join("");
    return make("span", { title: fullPlace(place) }, text.length < where(place).length ? `…${text}` : text);
  };
  const brief = (place) => (fileOf(place) ? `${fileOf(place).name.split(/[\\/]/).pop()}:${place[1]}` : "");
  const placeText = (place) => make("code", { title: fullPlace(place) }, where(place));
  const fullPlace = (place) => (fileOf(place) ? `${fileOf(place).path}:${place[1]}` : "");
  // A rule's text, with the paths of libraries as they are shown elsewhere.
  const ruleText = (rule) => make("code", { title: rule }, rule.replace(/\/\S*\/(?:site|dist)-packages\//g, ""));
  // The words of an id, which the details show.
  const wordsOf = (id) => (DATA.refusals[id] ? [DATA.refusals[id].title, DATA.refusals[id].next] : []);
  const matches = (...texts) => {
    const text = texts.join("\n").toLowerCase();
    return state.words.every((word) => text.includes(word));
  };

  // -- code ---------------------------------------------------------------------------------------------------------
  const TOKENS = /("""[^]*?"""|'''[^]*?'''|"""|'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(#.*)|\b(def|class|return|if|elif|else|for|while|in|is|not|and|or|with|as|try|except|finally|raise|import|from|lambda|None|True|False|yield|pass|break|continue|assert|global|nonlocal|del|async|await|self)\b|\b(\d[\w.]*)\b/g;
  const CLASSES = ["string", "comment", "word", "digits"];
  // The parts of each of some lines that follow each other, of which the first may begin inside of a string.
  function coloured(lines) {
    const whole = lines.join("\n");
    if (lines.length > 1 && (whole.match(/"""|'''/g) || []).length % 2) return lines.map((line) => coloured([line])[0]);
    const found = [[]];
    const add = (text, kind) => text.split("\n").forEach((part, i) => {
      if (i) found.push([]);
      if (part) found[found.length - 1].push(kind ? make("span", { class: kind }, part) : part);
    });
    let from = 0;
    for (const match of whole.matchAll(TOKENS)) {
      add(whole.slice(from, match.index));
      add(match[0], CLASSES[[1, 2, 3, 4].findIndex((group) => match[group] !== undefined)]);
      from = match.index + match[0].length;
    }
    add(whole.slice(from));
    return found;
  }
  function codeLine(number, parts, { chosen, place, hit, run } = {}) {
    const shown = place && fileOf(place) ? make("span", { title: fullPlace(place) }, brief(place)) : make("span");
    const classes = ["line", chosen && "chosen", run && "place", hit && "hit"].filter(Boolean).join(" ");
    const line = make("div", { class: classes, tabindex: run ? 0 : null, role: run ? "button" : null }, make("span", {}, String(number)), make("span", {}, parts), shown);
    if (run) {
      line.addEventListener("click", run);
      line.addEventListener("keydown", (event) => presses(event) && run());
    }
    return line;
  }

  // The known lines of a file from one to another.
  function linesOf(file, from, to) {
    const found = [];
    for (const [start, text] of file.runs) {
      const lines = text.split("\n");
      for (let i = Math.max(from - start, 0); i < lines.length && start + i <= to; i++) found.push([start + i, lines[i]]);
    }
    return found;
  }
  function sourceAround(place, chosen, before = 3, after = 3) {
    const file = fileOf(place);
    const lines = file ? linesOf(file, place[1] - before, place[1] + after) : [];
    return lines.length ? source(lines, chosen) : make("p", { class: "quiet" }, "The source lines are not known.");
  }
  function source(lines, chosen) {
    const parts = coloured(lines.map(([, text]) => text));
    return make("div", { class: "code" }, lines.map(([number], i) => codeLine(number, parts[i], { chosen: chosen.includes(number) })));
  }
  // The lines of a function: from its first one as far as they are known without a gap, and not less indented.
  function functionLines(place) {
    const file = fileOf(place);
    const run = file && file.runs.find(([start, text]) => place[1] >= start && place[1] < start + text.split("\n").length);
    if (!run) return [];
    const lines = linesOf(file, place[1], run[0] + run[1].split("\n").length - 1);
    const depth = (text) => text.search(/\S/);
    let end = 1;
    let inBody = /^\s*(async\s+def|def|class)\b|lambda/.test(lines[0][1]);
    for (; end < lines.length; end++) {
      const text = lines[end][1];
      if (!text.trim()) continue;
      if (depth(text) <= depth(lines[0][1]) && inBody && !/^\s*[)\]}]/.test(text)) break;
      inBody = inBody || /^\s*(async\s+def|def|class)\b/.test(text);
    }
    while (end > 1 && !lines[end - 1][1].trim()) end--;
    return lines.slice(0, end);
  }
  function sourceOfFunction(place, chosen) {
    const lines = functionLines(place);
    if (!lines.length) return make("p", { class: "quiet" }, fileOf(place) ? "The source lines are not known." : "It has no source lines.");
    return source(lines, chosen);
  }

  // -- the tree of calls --------------------------------------------------------------------------------------------
  // Totals and children of each frame, made once for each function.
  function grown(fn) {
    if (fn.grown) return fn.grown;
    const { parent, time, operators, name } = fn.tree;
    const count = name.length;
    const children = Array.from({ length: count }, () => []);
    const totals = { time: time.slice(), operators: operators.slice(), frames: new Array(count).fill(1) };
    const depth = new Array(count).fill(0);
    for (let i = 1; i < count; i++) {
      children[parent[i]].push(i);
      depth[i] = depth[parent[i]] + 1;
    }
    for (let i = count - 1; i > 0; i--) for (const total of Object.values(totals)) total[parent[i]] += total[i];
    fn.grown = { children, totals, depth };
    return fn.grown;
  }
  const frameMatches = (fn, i) => {
    const cause = fn.tree.causes[fn.tree.cause[i]];
    return matches(fn.tree.name[i], where(fn.tree.at[i]), KINDS[fn.tree.kind[i]].name, cause ? `${cause.id} ${cause.reason} ${cause.rule}` : "");
  };
  function path(fn, i) {
    const frames = [];
    for (let at = i; at >= 0; at = fn.tree.parent[at]) frames.unshift(at);
    return frames;
  }
  const measureOf = (fn) => (grown(fn).totals[state.measure][0] > 0 ? state.measure : "frames");

  // The boxes to draw, with the frames that are too narrow drawn together.
  function boxes(fn, width) {
    const { children, totals } = grown(fn);
    const measure = totals[measureOf(fn)];
    const outer = path(fn, state.zoom).slice(0, -1);
    const found = outer.map((frame, level) => ({ frame, level, left: 0, width, outer: true }));
    const open = [{ frame: state.zoom, level: outer.length, left: 0, width }];
    const scale = width / (measure[state.zoom] || 1);
    while (open.length) {
      const box = open.pop();
      found.push(box);
      if (box.many || box.mark) continue;
      const below = [];
      let left = box.left, narrow = null, marked = -MARK;
      for (const child of children[box.frame]) {
        const size = measure[child] * scale;
        if (size < MARK && (fn.tree.kind[child] === 2 || fn.tree.kind[child] === 3) && left >= marked + MARK) {
          marked = left;
          below.push({ frame: child, level: box.level + 1, left: Math.min(left, width - MARK), width: MARK + 1, mark: true });
        } else if (size >= NARROWEST) {
          narrow = null;
          below.push({ frame: child, level: box.level + 1, left, width: size });
        } else if (narrow) {
          narrow.width += size;
          narrow.many += 1;
        } else {
          narrow = { frame: child, level: box.level + 1, left, width: size, many: 1 };
          below.push(narrow);
        }
        left += size;
      }
      // In the order of the calls.
      open.push(...below.reverse());
    }
    return found.filter((box) => box.width >= 0.6);
  }
  function drawPicture(fn, picture) {
    const width = picture.clientWidth;
    const drawn = boxes(fn, width);
    const parts = document.createDocumentFragment();
    let deepest = 0;
    for (const box of drawn) {
      const i = box.frame;
      deepest = Math.max(deepest, box.level);
      const style = `left:${box.left.toFixed(1)}px;top:${box.level * ROW}px;width:${Math.max(box.width - 1, 1).toFixed(1)}px`;
      const element = document.createElement("div");
      element.setAttribute("style", style);
      element.dataset.frame = i;
      if (box.many > 1) {
        element.className = "frame many";
        element.setAttribute("role", "none");
        element.title = `${plural(box.many, "frame")}, each too narrow to draw: enlarge ${fn.tree.name[fn.tree.parent[i]]} by a double click or with Enter`;
        element.dataset.frame = fn.tree.parent[i];
        if (box.width > 14) element.textContent = "⋯";
      } else {
        const kind = KINDS[fn.tree.kind[i]];
        const hit = state.words.length && frameMatches(fn, i);
        element.className = `frame k${fn.tree.kind[i]}${box.outer ? " outer" : ""}${box.mark ? " mark" : ""}${state.words.length ? (hit ? " hit" : " off") : ""}`;
        element.id = `frame${i}`;
        element.setAttribute("role", "treeitem");
        element.setAttribute("aria-level", box.level + 1);
        element.setAttribute("aria-selected", i === state.selected);
        element.setAttribute("aria-label", `${fn.tree.name[i]}, ${kind.name}, ${amount(fn, i)}`);
        element.title = `${fn.tree.name[i]} · ${kind.name}\n${amount(fn, i)}\n${fullPlace(fn.tree.at[i])}`;
        if (box.width > 22) element.textContent = (kind.glyph ? `${kind.glyph} ` : "") + fn.tree.name[i];
      }
      parts.append(element);
    }
    picture.replaceChildren(parts);
    picture.style.height = `${(deepest + 1) * ROW}px`;
    if (byId(`frame${state.selected}`)) picture.setAttribute("aria-activedescendant", `frame${state.selected}`);
  }
  // A total with the part of it that belongs to the frame itself, if that is not all.
  const ownPart = (total, own, text, them) => (own === total ? text(total) : `${text(total)}, ${text(own)} of ${them} in itself`);
  function amount(fn, i) {
    const { totals } = grown(fn);
    const parts = [plural(totals.operators[i], "operator")];
    if (totals.time[0] > 0) parts.unshift(ownPart(totals.time[i], fn.tree.time[i], duration, "it"));
    return parts.join("; ");
  }
  function selectFrame(i, enlarge = false) {
    const fn = state.fn, picture = view.querySelector(".picture");
    state.selected = i;
    if (enlarge) state.zoom = i;
    if (!picture) return;
    drawPicture(fn, picture);
    if (!byId(`frame${i}`)) {
      // It is too narrow, or outside of what is enlarged.
      state.zoom = path(fn, i).includes(state.zoom) ? Math.max(fn.tree.parent[i], 0) : 0;
      drawPicture(fn, picture);
      if (!byId(`frame${i}`)) {
        state.zoom = i;
        drawPicture(fn, picture);
      }
    }
    keepFocus(() => showFrame(fn, i), () => picture);
  }
  function pictureKey(event) {
    const fn = state.fn, { children } = grown(fn), { parent } = fn.tree, i = state.selected;
    const beside = parent[i] >= 0 ? children[parent[i]] : [i];
    const at = beside.indexOf(i);
    const moves = {
      ArrowDown: () => children[i].length && selectFrame(children[i][0]),
      ArrowUp: () => parent[i] >= 0 && selectFrame(parent[i]),
      ArrowRight: () => at + 1 < beside.length && selectFrame(beside[at + 1]),
      ArrowLeft: () => at > 0 && selectFrame(beside[at - 1]),
      Home: () => selectFrame(0, true),
      Enter: () => selectFrame(i, true),
      Escape: () => selectFrame(Math.max(parent[state.zoom], 0), true),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }
  function showCalls(fn) {
    const { totals } = grown(fn);
    const kinds = KINDS.map((_, kind) => fn.tree.kind.filter((found) => found === kind).length);
    const choices = [["time", "capture time"], ["operators", "operators"], ["frames", "calls"]].filter(([name]) => totals[name][0] > 0);
    const picture = make("div", { class: "picture", role: "tree", tabindex: 0, "aria-label": "Calls" });
    picture.addEventListener("click", (event) => event.target.dataset.frame && selectFrame(+event.target.dataset.frame));
    picture.addEventListener("dblclick", (event) => event.target.dataset.frame && selectFrame(+event.target.dataset.frame, true));
    picture.addEventListener("keydown", pictureKey);
    const pressed = measureOf(fn);
    view.append(
      make("div", { class: "bar" },
        make("fieldset", { "aria-label": "Width" }, choices.map(([name, text]) =>
          make("button", { type: "button", "data-key": name, "aria-pressed": String(name === pressed), on: { click: () => { state.measure = name; show(); } } }, text))),
        make("ul", { class: "legend" }, KINDS.map((kind, i) => kinds[i] > 0 && make("li", { title: kind.tells }, make("i", { class: `k${i}` }, kind.glyph), `${kind.name} ${kinds[i]}`)))),
      picture,
      make("p", { class: "hint" }, make("kbd", {}, "←↑↓→"), " move  ", make("kbd", {}, "Enter"), " or double click: enlarge  ", make("kbd", {}, "Esc"), " back  ",
        fn.recorded ? "" : "Calls were not recorded: these are the frames that events name. fineline.explain(f)(*args) and fineline run --report record all. ",
        fn.tree.left_out ? `${plural(fn.tree.left_out, "cheaper frame")} left out.` : ""),
    );
    drawPicture(fn, picture);
    showFrame(fn, state.selected);
  }

  // -- details ------------------------------------------------------------------------------------------------------
  function explain(cause, place) {
    const words = DATA.refusals[cause.id];
    return make("div", { class: cause.built_in ? "why" : "why rule" },
      make("p", {}, make("strong", {}, `${cause.id}${words ? `: ${words.title}` : ""}`)),
      make("p", {}, cause.reason),
      cause.rule && make("p", {}, make("span", { class: "quiet" }, cause.built_in ? "Rule of fineline: " : "Rule: "), ruleText(cause.rule)),
      place && fileOf(place) && make("p", {}, make("span", { class: "quiet" }, "At "), placeText(place)),
      words && make("p", {}, make("span", { class: "quiet" }, "Next: "), words.next));
  }
  function facts(pairs) {
    return make("dl", { class: "facts" }, pairs.filter(([, value]) => value !== "" && value !== null).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  }
  function graphLines(fn, i) {
    // The lines of the graphs that this frame's function has made.
    const own = functionLines(fn.tree.at[i]).map(([number]) => number);
    const parts = [];
    for (const number of fn.tree.programs[i]) {
      const program = fn.programs[number];
      const lines = program.code.split("\n");
      const mine = lines.map((_, at) => at).filter((at) => program.lines[at] && program.lines[at][0] === fn.tree.at[i][0] && own.includes(program.lines[at][1]));
      const shown = mine.slice(0, 40);
      parts.push(make("p", {}, link(`graph of program ${number}`, () => { state.graph = number; open("graphs"); }), make("span", { class: "quiet" }, `  ${plural(program.operators, "operator")}, ${mine.length} from this function`)));
      if (shown.length) parts.push(make("div", { class: "code" }, shown.map((at) => codeLine(at + 1, coloured([lines[at].trim()])[0], { place: program.lines[at] }))));
    }
    return parts;
  }
  function showFrame(fn, i) {
    const { tree } = fn, { totals, children } = grown(fn);
    const cause = tree.causes[tree.cause[i]];
    const inside = children[i].map((child) => tree.causes[tree.cause[child]]).filter((found) => found && found.at[0] === tree.at[i][0]).map((found) => found.at[1]);
    const graphs = graphLines(fn, i);
    // What runs eagerly may be known only by the line that calls it.
    const called = cause && String(cause.at) === String(tree.at[i]);
    const broken = breakOf(fn, cause);
    detail.replaceChildren(
      make("h1", {}, tree.name[i]),
      make("span", { class: `badge k${tree.kind[i]}`, title: KINDS[tree.kind[i]].tells }, `${KINDS[tree.kind[i]].glyph} ${KINDS[tree.kind[i]].name}`.trim()),
      ...[cause && explain(cause, cause.at)].filter(Boolean),
      facts([
        ["defined at", called ? "" : placeText(tree.at[i])],
        ["time", totals.time[0] > 0 ? ownPart(totals.time[i], tree.time[i], duration, "it") : ""],
        ["operators", ownPart(totals.operators[i], tree.operators[i], grouped, "them")],
        ["graph break", broken ? spentAt(broken) : ""],
        ["called by", path(fn, i).length > 1 ? path(fn, i).slice(0, -1).map((at, n) => [n ? " › " : "", link(tree.name[at], () => selectFrame(at))]) : ""],
      ]),
      ...(cause && fileOf(cause.at) && tree.cause[tree.parent[i]] !== tree.cause[i] ? [make("h2", {}, "Line of the break"), sourceAround(cause.at, [cause.at[1]])] : []),
      ...(called ? [] : [make("h2", {}, "Source"), sourceOfFunction(tree.at[i], inside)]),
      ...(graphs.length ? [make("h2", {}, "Graph"), ...graphs] : []),
    );
    detail.scrollTop = 0;
  }
  // How often a break happened at a place, and what that costs.
  const spentAt = ({ times, time, cost }) => [
    `${plural(times, "time")}${time > 0 ? `, ${duration(time)} in its eager code` : ""}`,
    cost && `${plural(cost.graphs, "graph")} and ${plural(cost.guards, "guard")} in the programs after it`,
    cost && cost.unmeasured > 0 && `${plural(cost.unmeasured, "eager call")} not measured`,
  ].filter(Boolean).join("; ");
  function showBreak(group) {
    detail.replaceChildren(
      make("h1", {}, group.reason),
      make("span", { class: `badge k${group.built_in ? 3 : 2}` }, group.kind),
      explain(group, null),
      ...group.places.map((place) => [
        make("h2", {}, `${where(place.at)}${place.function ? ` in ${place.function}` : ""}`),
        make("p", { class: "quiet" }, spentAt(place)),
        sourceAround(place.at, [place.at[1]]),
        place.stack.length > 1 && make("ul", { class: "stack", "aria-label": "The calls that led there" }, place.stack.map(([name, at]) => make("li", {}, `${name}  `, make("span", { class: "quiet" }, where(at))))),
        frameOf(group, place),
      ]).flat().filter(Boolean),
    );
    detail.scrollTop = 0;
  }
  function frameOf(group, place) {
    const { tree } = state.fn;
    const i = tree.cause.findIndex((number) => number >= 0 && tree.causes[number].id === group.id && String(tree.causes[number].at) === String(place.at));
    return i >= 0 && make("p", {}, link("Show it among the calls", () => { open("calls"); selectFrame(i); }));
  }
  // The place of the graph break at which a frame runs eagerly, with its cost.
  const breakOf = (fn, cause) => fn.breaks.filter((group) => cause && group.id === cause.id && group.reason === cause.reason && group.rule === cause.rule)
    .flatMap((group) => group.places).find((place) => place.cost && String(place.at) === String(cause.at));
  function showPlace(title, place, more = []) {
    const known = fileOf(place);
    detail.replaceChildren(make("h1", {}, title), ...(known ? [make("p", { class: "quiet" }, placeText(place))] : []), ...more, ...(known ? [sourceAround(place, [place[1]])] : []));
    detail.scrollTop = 0;
  }

  // -- tables -------------------------------------------------------------------------------------------------------
  // A table whose rows are chosen by a click or with the arrow keys. `rows`: [cells, function that shows the details].
  function table(heads, rows, chosen = true) {
    const shown = state.all ? rows : rows.slice(0, MOST_ROWS);
    // Where a row has several lines, its cells have their labels beside them.
    const labels = heads.map((head) => head.label || head.parts || head);
    const body = make("tbody", {}, shown.map(([cells, run]) => {
      const row = make("tr", { tabindex: 0, "aria-selected": "false" }, cells.map((cell, i) => make("td", { class: cell.class, "data-head": labels[i] }, cell.parts === undefined ? cell : cell.parts)));
      const choose = () => {
        for (const other of body.querySelectorAll('[aria-selected="true"]')) other.setAttribute("aria-selected", "false");
        row.setAttribute("aria-selected", "true");
        run();
      };
      row.addEventListener("click", choose);
      row.addEventListener("keydown", (event) => {
        const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
        if (next) {
          event.preventDefault();
          next.focus();
        } else if (presses(event)) choose();
      });
      return row;
    }));
    view.append(make("table", { class: "rows" }, make("thead", {}, make("tr", {}, heads.map((head) => make("th", { class: head.class, scope: "col", "aria-sort": head.sort }, head.parts === undefined ? head : head.parts)))), body));
    if (shown.length < rows.length) {
      view.append(make("p", { class: "more" }, link(`Show all ${grouped(rows.length)}`, () => { state.all = true; show(); })));
    }
    if (!rows.length) view.append(make("p", { class: "empty" }, "Nothing matches."));
    const first = body.firstElementChild;
    if (first && chosen) first.click();
  }
  const nothing = (text) => view.append(make("p", { class: "empty" }, text));
  const number = (parts) => ({ class: "number", parts });
  const place = (at) => ({ class: "where", parts: fileOf(at) ? shortPlace(at) : "" });

  const foundBreaks = (fn) => fn.breaks.filter((group) => matches(group.id, group.kind, group.reason, group.rule, ...wordsOf(group.id), ...group.places.map((at) => `${where(at.at)} ${at.function}`)));
  const foundRules = (fn) => fn.rules.filter((rule) => matches(rule.text, rule.place, ...rule.costs));
  function showBreaks(fn) {
    if (fn.breaks.length) showCauses(fn);
    else nothing("No code was kept out of the graphs.");
    showRules(fn);
  }
  function showCauses(fn) {
    const most = Math.max(...fn.breaks.map((group) => group.time), 1), times = fn.breaks.reduce((sum, group) => sum + group.times, 0);
    view.append(make("p", { class: "quiet" }, `${plural(fn.breaks.length, "cause")} kept code out of the graphs, ${plural(times, "time")} in all. The first is the ${most > 1 ? "one whose code ran longest in Python" : "most frequent one"}.`));
    // Graphs and guards are known together with the costs.
    const costs = fn.breaks.some((group) => group.cost);
    const caused = (group, noun) => number(group.cost ? grouped(group.cost[noun]) : "–");
    table([number("time"), number("times"), ...(costs ? [number("graphs"), number("guards")] : []), "id", "cause", "where"], foundBreaks(fn).map((group) => [[
      number([group.time > 0 ? duration(group.time) : "–", group.time > 0 && make("span", { class: "meter", style: { width: `${(60 * group.time) / most}px` } })]),
      number(String(group.times)),
      ...(costs ? [caused(group, "graphs"), caused(group, "guards")] : []),
      { class: "badges", parts: make("span", { class: `badge k${group.built_in ? 3 : 2}` }, group.id) },
      { parts: [group.reason, make("br"), make("span", { class: "quiet" }, group.built_in ? group.kind : [`${group.kind}, by `, ruleText(group.rule)])] },
      { class: "where", parts: [shortPlace(group.places[0].at), group.places.length > 1 ? ` and ${group.places.length - 1} more` : ""] },
    ], () => showBreak(group)]));
  }
  function showRules(fn) {
    const rules = foundRules(fn);
    if (rules.length) {
      view.append(make("h2", {}, "Rules and marks"), make("table", { class: "rows" }, make("thead", {}, make("tr", {}, [make("th", { class: "number" }, "times"), make("th", {}, "rule")])),
        make("tbody", {}, rules.map((rule) => make("tr", {}, make("td", { class: "number" }, rule.times ? String(rule.times) : "never"),
          make("td", {}, ruleText(rule.text), rule.costs.map((text) => make("div", { class: "quiet" }, text))))))));
    }
  }
  const foundRecompiles = (fn) => fn.recompiles.filter((found) => matches(found.text, where(found.at), where(found.read)));
  function showRecompiles(fn) {
    if (!fn.recompiles.length) return nothing("No call was captured again.");
    table(["value", "change", "read at"], foundRecompiles(fn).map((found) => [[
      { class: "mono", parts: found.value || "–" },
      { class: "change", parts: found.changes.map(([aspect, before, now]) => make("div", {}, aspect && `${aspect} `, before ? [make("del", {}, before), " → ", make("ins", {}, now)] : now)) },
      place(found.read[0] >= 0 ? found.read : found.at),
    ], () => showPlace(found.value || "captured again", found.read[0] >= 0 ? found.read : found.at, [make("p", {}, found.text)])]));
  }
  // The guards of all programs: expression, condition, place, cost, program. Made once for each function.
  function guardsOf(fn) {
    fn.guards = fn.guards || fn.programs.flatMap(({ guards }, number) => {
      let name = "";
      return guards.rest.map((rest, i) => {
        name = name.slice(0, guards.shared[i]) + rest;
        return [name, guards.conditions[guards.condition[i]], guards.at[i], guards.cost[i], number];
      });
    });
    return fn.guards;
  }
  function foundGuards(fn) {
    const guards = guardsOf(fn);
    const found = guards.filter(([name, claim, at]) => matches(name, claim, where(at)));
    if (state.sort === "cost") found.sort((one, other) => other[3] - one[3]);
    if (state.sort === "name") found.sort((one, other) => (one[0] < other[0] ? -1 : one[0] > other[0] ? 1 : 0));
    return found;
  }
  function showGuards(fn) {
    if (!fn.numbers.guards) return nothing("No program has guards.");
    const head = (name, text, sort, kind) => ({
      class: kind, label: text, sort: state.sort === name && sort,
      parts: make("button", { type: "button", "data-key": name, on: { click: () => { state.sort = name; show(); } } }, text, make("span", { "aria-hidden": "true" }, state.sort !== name ? "" : sort === "ascending" ? " ▴" : " ▾")),
    });
    const checks = fn.programs.map((program) => program.check * 1e6).filter((check) => check >= 0);
    if (checks.length) {
      const ends = [...new Set([Math.min(...checks), Math.max(...checks)].map(duration))];
      view.append(make("p", { class: "quiet" }, `In a warm call the guards of a program take ${ends.join(" to ")}: less than the sum of these costs, because the core remembers what has not changed.`));
    } else {
      view.append(make("p", { class: "quiet" }, "Costs are measured by fineline.explain(f)(*args) and fineline run --report."));
    }
    table([head("cost", "cost", "descending", "number"), head("name", "expression", "ascending"), "condition", "read at", head("program", "program", "ascending", "number")], foundGuards(fn).map(([name, claim, at, spent, program]) => [[
      number(cost(spent)), { class: "mono", parts: name }, { class: "condition", parts: claim }, place(at), number(String(program)),
    ], () => showPlace(name, at, [make("p", {}, claim), facts([["cost", spent >= 0 ? `${cost(spent)}, with the reads for it alone, if nothing is remembered` : "not measured"], ["program", link(String(program), () => { state.program = program; open("program"); })]])])]));
  }

  // -- graphs and programs ------------------------------------------------------------------------------------------
  const graphsOf = (fn) => fn.programs.map((program, i) => [program, i]).filter(([program]) => program.operators > 0 && program.code);
  // `items`: the text, the number and the matches of each program.
  function picker(items, chosen, run) {
    return make("div", { class: "pick" }, items.map(([text, i, hits]) => make("button", {
      type: "button", "data-key": i, "data-hits": hits, "aria-pressed": String(i === chosen), on: { click: () => run(i) },
    }, state.words.length ? `${text} · ${hits}` : text)));
  }
  const lineMatches = (text, at) => state.words.length > 0 && matches(text, brief(at));
  const codeHits = (code, places) => code.split("\n").filter((line, i) => lineMatches(line, places[i])).length;
  const graphHits = (program) => codeHits(program.code, program.lines), programHits = (program) => codeHits(program.source, []);
  // Shows a line of the code that matches, with its details.
  function markHit(line) {
    for (const other of view.querySelectorAll(".line.current")) other.classList.remove("current");
    line.classList.add("current");
    if (line.getAttribute("role") === "button") line.click();
    line.scrollIntoView({ block: "center" });
  }
  // Goes to the next line of the code that matches, or with -1 to the one before; beyond the last one, to another program's.
  function nextHit(step) {
    const lines = () => [...view.querySelectorAll(".line.hit")];
    const line = lines()[lines().findIndex((hit) => hit.classList.contains("current")) + step];
    if (line) return markHit(line);
    const others = [...view.querySelectorAll(".pick button")].filter((button) => +button.dataset.hits > 0);
    const at = others.findIndex((button) => button.getAttribute("aria-pressed") === "true");
    const other = others.at(step > 0 ? (at + 1) % others.length : Math.max(at, 0) - 1);
    if (!other) return;
    other.click();
    markHit(lines().at(step > 0 ? 0 : -1));
  }
  function showCode(code, places) {
    const lines = code.split("\n"), parts = coloured(lines);
    const box = make("div", { class: "code" }, lines.map((text, i) => {
      const at = places[i];
      const run = at && fileOf(at) ? () => {
        for (const line of box.querySelectorAll(".chosen")) line.classList.remove("chosen");
        box.children[i].classList.add("chosen");
        showPlace(text.trim().split(" = ")[0], at, [make("p", {}, make("code", {}, text.trim()))]);
      } : null;
      return codeLine(i + 1, parts[i], { place: at, run, hit: lineMatches(text, at) });
    }));
    view.append(box);
    return box;
  }
  function showGraphs(fn) {
    const graphs = graphsOf(fn);
    if (!graphs.length) return nothing("Nothing was captured in a graph.");
    const [program, chosen] = graphs.find(([, i]) => i === state.graph) || graphs[0];
    view.append(picker(graphs.map(([found, i]) => [`program ${i}: ${plural(found.operators, "operator")}`, i, graphHits(found)]), chosen, (i) => { state.graph = i; show(); }));
    const box = showCode(program.code, program.lines);
    const placed = box.querySelector(".line.place"), hit = box.querySelector(".hit");
    if (placed) placed.click();
    else detail.replaceChildren(make("p", { class: "empty" }, "The lines of its operators are not known."));
    if (hit) markHit(hit);
  }
  function showProgram(fn) {
    if (!fn.programs.length) return nothing("No program was kept.");
    const chosen = fn.programs[state.program] ? state.program : 0;
    const program = fn.programs[chosen];
    view.append(picker(fn.programs.map((found, i) => [`program ${i}`, i, programHits(found)]), chosen, (i) => { state.program = i; show(); }));
    const hit = showCode(program.source, []).querySelector(".hit");
    if (hit) markHit(hit);
    detail.replaceChildren(
      make("h1", {}, `Program ${chosen}`),
      make("p", {}, "The Python code that runs instead of this part of the function, after its guards have held."),
      facts([
        ["operators", grouped(program.operators)],
        ["guards", link(grouped(program.guards.rest.length), () => open("guards"))],
        ["guards, warm", program.check >= 0 ? duration(program.check * 1e6) : ""],
        ["backend", program.backend > 0 ? duration(program.backend * 1e6) : ""],
        ["writing", program.writing >= 0 ? duration(program.writing * 1e6) : ""],
        ["graph", program.operators && program.code ? link("show", () => { state.graph = chosen; open("graphs"); }) : "none"],
      ]));
  }

  // -- timings ------------------------------------------------------------------------------------------------------
  function showTimings(fn) {
    const { tree } = fn, measured = fn.programs.filter((program) => program.backend >= 0);
    if (!(grown(fn).totals.time[0] > 0) && !measured.length) {
      detail.replaceChildren();
      return nothing("Nothing was measured: fineline.explain(f)(*args) and fineline run --report measure captures; other captures pay nothing for it.");
    }
    const sum = (values) => values.reduce((total, value) => total + value, 0);
    const rows = KINDS.map((kind, i) => [`frames ${kind.name}`, sum(tree.time.filter((_, at) => tree.kind[at] === i)), `k${i}`]);
    rows.push(["writing of programs", sum(measured.map((program) => program.writing)) * 1e6, "plain"], ["backend", sum(measured.map((program) => program.backend)) * 1e6, "plain"]);
    const most = Math.max(...rows.map(([, time]) => time), 1), total = sum(rows.map(([, time]) => time));
    view.append(make("h2", {}, fn.seconds > 0 ? `The explained call: ${duration(fn.seconds * 1e6)}` : `The captures: ${duration(total)}`),
      make("div", { class: "totals" }, rows.filter(([, time]) => time > 0).map(([name, time, kind]) => [
        make("span", {}, name), make("div", { class: "track" }, make("div", { class: `fill ${kind}`, style: { width: `${(100 * time) / most}%` } })), make("span", { class: "number" }, duration(time))])),
      make("p", { class: "hint" }, "Frames have the time in which they ran in the capture, observation included; a later call runs the programs instead."));
    if (measured.length) {
      view.append(make("h2", {}, "Programs"));
      const rows = fn.programs.map((program, i) => [[`program ${i}`, number(grouped(program.operators)), number(grouped(program.guards.rest.length)), number(program.check >= 0 ? duration(program.check * 1e6) : "–"),
        number(program.writing >= 0 ? duration(program.writing * 1e6) : "–"), number(program.backend > 0 ? duration(program.backend * 1e6) : "–")], () => { state.program = i; open("program"); }]);
      table(["program", number("operators"), number("guards"), number("guards, warm call"), number("writing"), number("backend")], rows, false);
    }
    const frames = tree.name.map((_, i) => i).filter((i) => frameMatches(fn, i)).sort((one, other) => tree.time[other] - tree.time[one]).slice(0, 25);
    view.append(make("h2", {}, "Frames by their own time"));
    table([number("itself"), number("in all"), "frame", "kind", "defined at"], frames.map((i) => [[
      number(duration(tree.time[i])), number(duration(grown(fn).totals.time[i])), { class: "mono", parts: tree.name[i] }, { class: "badges", parts: make("span", { class: `badge k${tree.kind[i]}` }, KINDS[tree.kind[i]].name) }, place(tree.at[i]),
    ], () => { state.selected = i; showFrame(fn, i); }]));
  }

  // -- tabs, search, themes -----------------------------------------------------------------------------------------
  const foundFrames = (fn) => fn.tree.name.filter((_, i) => frameMatches(fn, i)).length;
  const TABS = [
    ["calls", "Calls", showCalls, (fn) => fn.tree.name.length, foundFrames],
    ["breaks", "Breaks", showBreaks, (fn) => fn.breaks.length, (fn) => foundBreaks(fn).length + foundRules(fn).length],
    ["recompiles", "Recompiles", showRecompiles, (fn) => fn.recompiles.length, (fn) => foundRecompiles(fn).length],
    ["guards", "Guards", showGuards, (fn) => fn.numbers.guards, (fn) => foundGuards(fn).length],
    ["graphs", "Graphs", showGraphs, (fn) => graphsOf(fn).length, (fn) => graphsOf(fn).reduce((total, [program]) => total + graphHits(program), 0)],
    ["program", "Programs", showProgram, (fn) => fn.programs.length, (fn) => fn.programs.reduce((total, program) => total + programHits(program), 0)],
    ["timings", "Timings", showTimings, null, foundFrames],
  ];
  function showTabs() {
    const buttons = TABS.map(([name, text, , count, hits]) => make("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-selected": String(name === state.tab), "aria-controls": "view", tabindex: name === state.tab ? 0 : -1,
      on: { click: () => open(name) },
    }, text, count && !state.words.length && make("span", { class: "count" }, grouped(count(state.fn))), state.words.length > 0 && make("span", { class: "hits" }, grouped(hits(state.fn)))));
    byId("tabs").replaceChildren(...buttons);
    view.setAttribute("aria-labelledby", `tab-${state.tab}`);
  }
  function open(name) {
    state.tab = name;
    state.all = false;
    show();
  }
  function show() {
    const fromTabs = byId("tabs").contains(document.activeElement);
    keepFocus(() => {
      showTabs();
      view.replaceChildren();
      view.scrollTop = 0;
      detail.replaceChildren();
      TABS.find(([name]) => name === state.tab)[2](state.fn);
    }, () => (fromTabs ? byId(`tab-${state.tab}`) : view));
    const hits = TABS.find(([name]) => name === state.tab)[4];
    byId("found").textContent = state.words.length ? plural(hits(state.fn), "match", "matches") : "";
  }
  function pick(i) {
    Object.assign(state, { fn: DATA.functions[i], selected: 0, zoom: 0, graph: 0, program: 0, all: false });
    byId("headline").textContent = state.fn.headline.slice(state.fn.name.length + 2).replace(/\d{4,}/g, (digits) => grouped(+digits));
    byId("headline").title = state.fn.headline;
    show();
  }
  byId("tabs").addEventListener("keydown", (event) => {
    const names = TABS.map(([name]) => name), at = names.indexOf(state.tab);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    open(names[(next + names.length) % names.length]);
  });
  search.addEventListener("input", () => {
    state.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    show();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search.value = "";
      search.dispatchEvent(new Event("input"));
    } else if (event.key === "Enter" && state.words.length && (state.tab === "graphs" || state.tab === "program")) {
      nextHit(event.shiftKey ? -1 : 1);
    } else if (event.key === "Enter" && state.tab === "calls" && state.words.length) {
      // The next frame that matches, or with Shift the one before.
      const found = state.fn.tree.name.map((_, i) => i).filter((i) => frameMatches(state.fn, i));
      if (!found.length) return;
      const at = event.shiftKey ? found.findLastIndex((i) => i < state.selected) : found.findIndex((i) => i > state.selected);
      selectFrame(found.at(at < 0 ? (event.shiftKey ? -1 : 0) : at));
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    search.focus();
    search.select();
  });
  byId("theme").addEventListener("click", () => {
    const themes = ["", "light", "dark"], root = document.documentElement;
    const next = themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    byId("theme").setAttribute("aria-label", `Theme: ${next || "as the system"}`);
    byId("theme").textContent = { "": "◐", light: "○", dark: "●" }[next];
  });
  let resized = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(resized);
    resized = requestAnimationFrame(() => {
      const picture = view.querySelector(".picture");
      if (picture && picture.clientWidth !== +picture.dataset.width) drawPicture(state.fn, picture);
      if (picture) picture.dataset.width = picture.clientWidth;
    });
  }).observe(view);

  byId("function").append(...DATA.functions.map((fn, i) => make("option", { value: i }, fn.process ? `${fn.name} – ${fn.process}` : fn.name)));
  byId("function").addEventListener("change", (event) => pick(+event.target.value));
  if (DATA.functions.length) pick(0);
  else view.append(make("p", { class: "empty" }, "No compiled function was called."));
})();
