"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const { nodes, edges, days } = data;
const NUM = nodes.key.length, LINES = edges.source.length;
const COMFORTABLE = 1500, MANY = 2500;

// Every text goes in as text: no name becomes markup.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "line", "rect", "path"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}
const number = value => value.toLocaleString("en");
const plural = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
const dayText = offset => new Date((days.first + offset) * 864e5).toISOString().slice(0, 10);

const KINDS = {
  dataflow: { dash: null, says: "a result was used as an argument" },
  adjacent: { dash: null, says: "called one after the other" },
  declared: { dash: [10, 4], says: "stated by an API document or a shipped graph" },
  type: { dash: [2, 4], says: "an output type fits an input type" },
  predicted: { dash: [6, 3, 2, 3], says: "a model expects it; nobody saw it" },
};
const STANDINGS = {
  dependency: { arrow: "triangle", says: "seen mostly to succeed" },
  warning: { arrow: "tee", dash: [7, 5], says: "seen mostly before errors of the second tool" },
  fallback: { arrow: "vee", dash: [2, 5], says: "seen only after the first tool had failed" },
  stated: { arrow: "triangle", says: "stated or predicted, not observed" },
};
const CHANGES = {
  added: { sign: "+", dash: null, says: "came" },
  removed: { sign: "\u2212", dash: [6, 4], says: "went" },
  strengthened: { sign: "\u2191", dash: null, says: "seen more often" },
  weakened: { sign: "\u2193", dash: [2, 4], says: "seen less often" },
  renamed: { sign: "\u21c4", dash: null, says: "renamed" },
  changed: { sign: "~", dash: null, says: "contract changed" },
};
const SHAPES = ["ellipse", "rectangle", "diamond", "triangle", "hexagon", "pentagon", "vee", "star"];
const HUES = {
  light: ["#4477aa", "#b5532a", "#2f7f5f", "#8e4a86", "#8a7412", "#287f92", "#a23e5c", "#5d5f66"],
  dark: ["#7fb0e6", "#f09a6c", "#63cfa3", "#d79bd0", "#ddc95c", "#6fd0e2", "#f08aa5", "#b3b6bd"],
};

// --- what lies between two tools: one arrow for all kinds of one direction ----------------------

const pairs = [], pairOf = new Map();
for (let e = 0; e < LINES; e++) {
  const at = edges.source[e] * NUM + edges.target[e];
  if (!pairOf.has(at)) {
    pairOf.set(at, pairs.length);
    pairs.push({ id: "e" + pairs.length, source: edges.source[e], target: edges.target[e], edges: [] });
  }
  pairs[pairOf.get(at)].edges.push(e);
}
const around = Array.from({ length: NUM }, () => []);
pairs.forEach((pair, p) => {
  around[pair.source].push(p);
  if (pair.target !== pair.source) around[pair.target].push(p);
});
const dailyOf = Array.from({ length: LINES }, () => []);
const perDay = new Array(Math.max(days.num, 1)).fill(0);
let numUntimed = 0;
data.daily.edge.forEach((e, i) => {
  const day = data.daily.day[i], count = data.daily.count[i];
  dailyOf[e].push([day, count]);
  if (day >= 0) perDay[day] += count; else numUntimed += count;
});

const kindName = e => data.kinds[edges.kind[e]];
const standingName = e => data.standings[edges.standing[e]];
const changeOf = e => edges.change ? edges.change[e] : null;
const rank = Object.keys(KINDS);
const isStated = e => standingName(e) === "stated";

// --- state -------------------------------------------------------------------------------------

const state = {};
function defaults() {
  Object.assign(state, {
    kinds: new Set(data.kinds), standings: new Set(data.standings),
    spaces: new Set(nodes.space.length ? data.spaces.keys() : []),
    from: 0, to: Math.max(days.num - 1, 0), untimed: true, least: 1, most: startMost(),
    linked: false, byChange: Boolean(data.diff), onlyChanges: false, resources: false,
  });
}
function startMost() {
  if (pairs.length <= COMFORTABLE) return 0;
  for (const most of [10, 5, 3, 2]) if (strongest(pairs.map((_, p) => p), most, total).length <= COMFORTABLE) return most;
  return 1;
}
const total = p => pairs[p].edges.reduce((sum, e) => sum + edges.seen[e], 0);

function strongest(rows, most, weigh) {
  const left = new Array(NUM).fill(most);
  const ordered = rows.map(p => [weigh(p), p]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return ordered.map(([, p]) => p).filter(p => {
    const { source, target } = pairs[p];
    const keep = left[source] > 0 || left[target] > 0;
    left[source]--;
    left[target]--;
    return keep;
  });
}

function countOf(e) {
  if (state.untimed && state.from === 0 && state.to >= days.num - 1) return edges.seen[e];
  if (!dailyOf[e].length) return state.untimed ? edges.seen[e] : 0;
  let count = 0;
  for (const [day, times] of dailyOf[e]) {
    if (day < 0 ? state.untimed : day >= state.from && day <= state.to) count += times;
  }
  return count;
}

// --- the picture -------------------------------------------------------------------------------

const colours = {};
const dark = matchMedia("(prefers-color-scheme: dark)");
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["page", "text", "soft", "accent", "tool", "halo", "added", "removed",
    "strengthened", "weakened", "renamed", "same", "warning", "fallback", ...rank]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
  colours.changed = colours.weakened;
  colours.hues = HUES[dark.matches ? "dark" : "light"];
}
readColours();
defaults();

const calls = n => nodes.ok[n] + nodes.unrecorded[n] + nodes.failed[n];
const weight = nodes.key.map((_, n) => Math.max(calls(n), around[n].length));
const maxWeight = Math.max(1, ...weight);
const maxSeen = Math.max(1, ...pairs.map((_, p) => total(p)));
const lively = pairs.length <= 600;
const thick = Math.min(2.5, Math.max(1, Math.sqrt(NUM / 120)));
const RESOURCE = 28 * thick;

function sizeOf(n) {
  const size = 14 + 24 * Math.log1p(weight[n]) / Math.log1p(maxWeight);
  return Math.sqrt(thick) * (nodes.change && nodes.change[n] ? Math.max(26, size) : size);
}
const spaceColour = n => data.spaces.length > 1 ? colours.hues[nodes.space[n] % 8] : colours.tool;
const spaceShape = n => data.spaces.length > 1 ? SHAPES[nodes.space[n] % 8] : "ellipse";

const cy = window.cy = cytoscape({
  container: byId("graph"),
  elements: nodes.key.map((key, n) => ({
    group: "nodes", data: { id: "n" + n, n, size: sizeOf(n) },
    position: { x: nodes.x[n], y: nodes.y[n] },
  })),
  layout: { name: "preset" },
  style: [],
  minZoom: 0.02, maxZoom: 6, boxSelectionEnabled: false, autoungrabify: NUM > 500,
  selectionType: "single",
  hideEdgesOnViewport: pairs.length > COMFORTABLE, textureOnViewport: NUM > 1000,
  motionBlur: false, pixelRatio: NUM > 1000 ? 1 : "auto",
});
const nodeAt = nodes.key.map((_, n) => cy.getElementById("n" + n));

function paint() {
  cy.style([
    { selector: "node", style: {
      width: "data(size)", height: "data(size)", shape: "data(shape)",
      "background-color": "data(colour)", "border-width": 1.5, "border-color": colours.page } },
    { selector: "node[?hollow]", style: {
      "background-opacity": 0.15, "border-color": "data(colour)", "border-style": "dashed", "border-width": 2 } },
    { selector: "node[?change]", style: { "border-width": 4, "border-color": "data(colour)" } },
    { selector: "node.resource", style: {
      width: RESOURCE, height: RESOURCE, shape: "round-diamond", "background-color": colours.type, "border-width": 0 } },
    { selector: "edge", style: {
      width: "data(width)", "line-color": "data(colour)", "target-arrow-color": "data(colour)",
      "target-arrow-shape": "data(arrow)", "arrow-scale": 0.9, "line-style": "data(line)",
      "curve-style": lively ? "bezier" : "straight", opacity: "data(opacity)", "z-index": 1 } },
    { selector: "edge[dash]", style: { "line-dash-pattern": "data(dash)" } },
    { selector: "edge.thin", style: { "curve-style": "haystack", "haystack-radius": 0, opacity: 0.5 } },
    { selector: "edge:loop", style: { "curve-style": "bezier", "loop-sweep": "40deg" } },
    { selector: "edge.link", style: {
      width: 1.5 * thick, "line-color": colours.type, "target-arrow-color": colours.type,
      "target-arrow-shape": "triangle", "line-style": "dashed", "line-dash-pattern": KINDS.type.dash, "curve-style": "straight", opacity: 0.7 } },
    { selector: ".faded", style: { opacity: 0.1 } },
    { selector: "node.faded", style: { opacity: 0.22 } },
    { selector: ".off", style: { display: "none" } },
    { selector: "node.chosen", style: { "border-width": 5, "border-color": colours.accent } },
    { selector: "edge.chosen", style: { opacity: 1, "z-index": 9, "underlay-color": colours.accent, "underlay-opacity": 0.3, "underlay-padding": 5 } },
    { selector: "edge.near", style: { opacity: 1, "z-index": 8 } },
    { selector: ":active", style: { "overlay-opacity": 0 } },
  ]);
}

function nodeLook(n) {
  const change = state.byChange && data.diff ? nodes.change[n] : null;
  return {
    colour: change ? colours[change] : state.byChange ? colours.same : spaceColour(n),
    shape: spaceShape(n), change: change || 0,
    hollow: nodes.status[n] !== "active" ? 1 : 0,
  };
}

function pairLook(p) {
  const pair = pairs[p], shown = pair.shown;
  const first = shown.slice().sort((a, b) => rank.indexOf(kindName(a)) - rank.indexOf(kindName(b)))[0];
  const held = ["dependency", "stated", "warning", "fallback"].find(s => shown.some(e => standingName(e) === s));
  const kind = kindName(first);
  pair.change = null;
  let colour = colours[kind] || colours.adjacent, dash = (KINDS[kind] || {}).dash;
  if (held === "warning" || held === "fallback") {
    colour = colours[held];
    dash = STANDINGS[held].dash;
  }
  if (state.byChange) {
    const change = Object.keys(CHANGES).find(c => shown.some(e => changeOf(e) === c));
    colour = change ? colours[change] : colours.same;
    dash = change ? CHANGES[change].dash : null;
    pair.change = change;
  }
  const look = {
    colour, arrow: (STANDINGS[held] || STANDINGS.dependency).arrow,
    opacity: state.byChange && !pair.change ? 0.4 : 0.75,
    width: (pair.change ? 3 : 0) + thick * (1 + 5 * Math.log1p(Math.max(pair.count - 1, 0)) / Math.log1p(maxSeen)),
    line: dash ? "dashed" : "solid", dash: dash || null,
  };
  return look;
}

function apply() {
  const visible = [];
  pairs.forEach((pair, p) => {
    pair.shown = [];
    pair.count = 0;
    if (!state.spaces.has(nodes.space[pair.source]) || !state.spaces.has(nodes.space[pair.target])) return;
    for (const e of pair.edges) {
      if (!state.kinds.has(kindName(e)) || !state.standings.has(standingName(e))) continue;
      if (state.onlyChanges && !changeOf(e)) continue;
      if (changeOf(e) === "removed") {
        if (state.byChange) pair.shown.push(e);
        continue;
      }
      const count = countOf(e);
      if (count === 0 && !isStated(e)) continue;
      if (isStated(e) && !state.untimed) continue;
      if (!isStated(e) && count < state.least) continue;
      pair.shown.push(e);
      pair.count += count;
    }
    if (pair.shown.length) visible.push(p);
  });
  const drawn = state.most ? strongest(visible, state.most, p => pairs[p].count) : visible;
  const isDrawn = new Set(drawn), touched = new Set();
  for (const p of drawn) {
    touched.add(pairs[p].source);
    touched.add(pairs[p].target);
  }
  const fresh = [];
  cy.batch(() => {
    pairs.forEach((pair, p) => {
      if (isDrawn.has(p)) {
        const look = pairLook(p);
        if (pair.element) {
          pair.element.removeData("dash").data(clean(look)).removeClass("off");
        } else {
          fresh.push({ group: "edges", data: { id: pair.id, p, source: "n" + pair.source, target: "n" + pair.target, ...clean(look) } });
        }
      } else if (pair.element) pair.element.addClass("off");
    });
    if (fresh.length) cy.add(fresh).forEach(element => { pairs[element.data("p")].element = element; });
    const thin = drawn.length > MANY;
    cy.edges().not(".link").toggleClass("thin", thin);
    let shownNodes = 0;
    nodeAt.forEach((element, n) => {
      const on = state.spaces.has(nodes.space[n]) && (state.byChange || nodes.status[n] !== "gone") && (!state.linked || touched.has(n))
        
        && (!state.onlyChanges || nodes.change[n] || touched.has(n));
      element.toggleClass("off", !on).data(nodeLook(n));
      shownNodes += on ? 1 : 0;
    });
    showResources();
    byId("status").textContent = statusText(shownNodes, drawn.length, visible.length, thin);
  });
  if (chosen) mark();
  labelsSoon();
}
const clean = look => Object.fromEntries(Object.entries(look).filter(([, value]) => value != null));

function statusText(tools, drawn, visible, thin) {
  const text = [`${number(tools)} of ${number(NUM)} tools, ${number(drawn)} of ${number(pairs.length)} arrows.`];
  if (drawn < visible) {
    const which = state.most === 1 ? "strongest arrow" : `${state.most} strongest arrows`;
    text.push(`Of the ${number(visible)} that pass the filters, the ${which} of each tool: choose more under \u201cHow much\u201d.`);
  }
  if (data.left_out) text.push(`${number(data.left_out)} weaker kinds of arrows are not in this file.`);
  if (thin) text.push("So many arrows are drawn without heads.");
  return text.join(" ");
}

let resourceElements = null;
function showResources() {
  if (!data.resources) return;
  if (state.resources && !resourceElements) {
    const { name, x, y, links } = data.resources;
    resourceElements = cy.add([
      ...name.map((_, r) => ({ group: "nodes", classes: "resource", data: { id: "r" + r, r }, position: { x: x[r], y: y[r] } })),
      ...links.map(([r, n, given], i) => ({ group: "edges", classes: "link", data: {
        id: "l" + i, source: given ? "n" + n : "r" + r, target: given ? "r" + r : "n" + n } })),
    ]);
  }
  if (resourceElements) resourceElements.toggleClass("off", !state.resources);
}

// --- labels: as many as find room, the busiest tools first ---------------------------------------

const canvas = byId("labels"), pen = canvas.getContext("2d");
const busy = nodes.key.map((_, n) => n).sort((a, b) => weight[b] - weight[a] || a - b);
const BLOCK = 7, IMPORTANT = 24;
let waiting = false, wholeZoom = 1;
function labelsSoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawLabels(); });
}

// Which blocks of the screen are taken: 1 by a tool, 2 by a label or a button.
class Room {
  constructor(wide, high) {
    this.columns = Math.ceil(wide / BLOCK);
    this.rows = Math.ceil(high / BLOCK);
    this.blocks = new Uint8Array(this.columns * this.rows);
  }
  each(x, y, w, h, visit) {
    const right = Math.min(this.columns - 1, Math.floor((x + w) / BLOCK)), low = Math.min(this.rows - 1, Math.floor((y + h) / BLOCK));
    for (let row = Math.max(0, Math.floor(y / BLOCK)); row <= low; row++) {
      for (let column = Math.max(0, Math.floor(x / BLOCK)); column <= right; column++) visit(row * this.columns + column);
    }
  }
  take(x, y, w, h, as) {
    this.each(x, y, w, h, at => { this.blocks[at] = Math.max(this.blocks[at], as); });
  }
  cost(x, y, w, h) {
    let tools = 0, labels = 0;
    this.each(x, y, w, h, at => { if (this.blocks[at] === 2) labels++; else tools += this.blocks[at]; });
    return labels ? Infinity : tools;
  }
}

function drawLabels() {
  const ratio = devicePixelRatio || 1, wide = canvas.clientWidth, high = canvas.clientHeight;
  if (canvas.width !== Math.round(wide * ratio)) canvas.width = Math.round(wide * ratio);
  if (canvas.height !== Math.round(high * ratio)) canvas.height = Math.round(high * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, high);
  pen.textAlign = "center";
  pen.textBaseline = "top";
  pen.lineJoin = "round";
  const zoom = cy.zoom(), pan = cy.pan(), room = new Room(wide, high);
  room.take(wide - 50, 0, 50, 125, 2);
  room.take(0, high - byId("status").offsetHeight - 10, byId("status").offsetWidth + 10, 60, 2);
  const spots = nodes.key.map((_, n) => {
    if (nodeAt[n].hasClass("off")) return null;
    const at = nodeAt[n].position(), x = at.x * zoom + pan.x, y = at.y * zoom + pan.y;
    const half = nodeAt[n].data("size") * zoom / 2;
    if (x < -40 || y < -40 || x > wide + 40 || y > high + 40) return null;
    if (!chosen || chosen.near.includes(n)) room.take(x - half, y - half, 2 * half, 2 * half, 1);
    return { x, y, half };
  });
  const put = (text, { x, y, half, fixed }, bold, sure, colour) => {
    pen.font = (bold ? "600 13px " : "12px ") + "system-ui, 'DejaVu Sans', sans-serif";
    const w = pen.measureText(text).width + 4, inside = at => Math.max(w / 2 + 2, Math.min(wide - w / 2 - 2, at));
    const places = [[inside(x), y + half + 2], [inside(x), y - half - 16], [x + half + 3 + w / 2, y - 7], [x - half - 3 - w / 2, y - 7]];
    let best = null, least = Infinity;
    for (const [cx, top] of fixed ? places.slice(0, 1) : places) {
      if (cx - w / 2 < 0 || cx + w / 2 > wide || top < 0 || top + 14 > high) continue;
      const cost = room.cost(cx - w / 2, top + 1, w, 12);
      if (cost < least) [best, least] = [[cx, top], cost];
    }
    if (least > (sure ? 1e6 : 2)) {
      if (sure !== "always") return;
      best = places[0];
    }
    room.take(best[0] - w / 2, best[1] + 1, w, 12, 2);
    pen.lineWidth = 3.5;
    pen.strokeStyle = colours.halo;
    pen.strokeText(text, ...best);
    pen.fillStyle = colour;
    pen.fillText(text, ...best);
  };
  const longest = zoom > 1.4 ? 60 : zoom > 0.7 ? 32 : 26;
  const one = (n, bold, sure) => {
    if (!spots[n]) return;
    const change = state.byChange && nodes.change ? nodes.change[n] : null, name = nodes.name[n];
    const text = name.length > longest && !bold ? name.slice(0, longest - 1) + "\u2026" : name;
    put(change ? CHANGES[change].sign + " " + text : text, spots[n], bold, sure, colours.text);
  };
  if (state.resources && data.resources) {
    const { name, x, y } = data.resources;
    name.forEach((text, r) => put(text, { x: x[r] * zoom + pan.x, y: y[r] * zoom + pan.y, half: RESOURCE * zoom / 2 }, true, !chosen, colours.type));
  }
  if (chosen) chosen.near.forEach((n, i) => one(n, i < chosen.sure, i < chosen.sure ? "always" : false));
  else {
    if (zoom < 1.6 * wholeZoom) spaceNames(spots).forEach(([text, spot]) => put(text, spot, true, true, colours.soft));
    const order = state.byChange ? busy.filter(n => nodes.change[n]).concat(busy.filter(n => !nodes.change[n])) : busy;
    order.forEach((n, i) => one(n, false, i < IMPORTANT));
  }
}
// Names of namespaces over their middles, while all of the picture is in sight.
function spaceNames(spots) {
  if (data.spaces.length < 2) return [];
  const sums = data.spaces.map(() => [0, 0, 0]);
  spots.forEach((spot, n) => {
    if (!spot) return;
    const sum = sums[nodes.space[n]];
    sum[0] += spot.x;
    sum[1] += spot.y;
    sum[2]++;
  });
  return data.spaces.map((text, s) => [text, sums[s]]).filter(([, sum]) => sum[2] > 4)
    .sort((a, b) => b[1][2] - a[1][2]).map(([text, [x, y, count]]) => [text, { x: x / count, y: y / count - 8, half: 0, fixed: true }]);
}
cy.on("viewport resize position", labelsSoon);

// --- choosing ----------------------------------------------------------------------------------

let chosen = null;

function mark() {
  cy.batch(() => {
    cy.elements().removeClass("faded chosen near");
    if (!chosen) return;
    if (chosen.node != null) {
      const open = around[chosen.node].filter(p => pairs[p].element && !pairs[p].element.hasClass("off"));
      const others = open.map(p => pairs[p].source === chosen.node ? pairs[p].target : pairs[p].source);
      chosen.near = [...new Set([chosen.node, ...others])];
      chosen.sure = 1;
      const keep = cy.collection().union(chosen.near.map(n => nodeAt[n]).reduce((all, e) => all.union(e), cy.collection()));
      const lines = open.reduce((all, p) => all.union(pairs[p].element), cy.collection());
      cy.elements().not(keep).not(lines).addClass("faded");
      lines.addClass("near");
      nodeAt[chosen.node].addClass("chosen");
    } else {
      const pair = pairs[chosen.pair];
      chosen.near = [pair.source, pair.target];
      chosen.sure = 2;
      cy.elements().not(nodeAt[pair.source]).not(nodeAt[pair.target]).addClass("faded");
      if (pair.element) pair.element.removeClass("faded").addClass("chosen");
    }
  });
  labelsSoon();
}

function chooseNode(n, move) {
  chosen = { node: n };
  if (nodeAt[n].hasClass("off")) {
    byId("controls").reset();
    refresh();
  }
  mark();
  describeNode(n);
  if (move) {
    const hood = chosen.near.reduce((all, m) => all.union(nodeAt[m]), cy.collection());
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const box = hood.boundingBox();
    const room = Math.min(cy.width() / (box.w + 80), cy.height() / (box.h + 80));
    const zoom = Math.min(1.6, Math.max(0.5, room));
    const at = nodeAt[n].position();
    const view = room < 0.5 ? { zoom, pan: { x: cy.width() / 2 - at.x * zoom, y: cy.height() / 2 - at.y * zoom } }
      : { zoom, pan: { x: cy.width() / 2 - (box.x1 + box.w / 2) * zoom, y: cy.height() / 2 - (box.y1 + box.h / 2) * zoom } };
    if (still || NUM > 1000) cy.viewport(view);
    else cy.animate(view, { duration: 250 });
  }
}
function choosePair(p) {
  chosen = { pair: p };
  mark();
  describePair(p);
}
function clear() {
  chosen = null;
  mark();
  describeAll();
}
cy.on("tap", "node[n]", event => chooseNode(event.target.data("n"), false));
cy.on("tap", "node[r]", event => describeResource(event.target.data("r")));
cy.on("tap", "edge[p]", event => choosePair(event.target.data("p")));
cy.on("tap", event => { if (event.target === cy) clear(); });

// --- details -----------------------------------------------------------------------------------

const panel = byId("details");
function show(...children) {
  const isHere = panel.contains(document.activeElement);
  panel.replaceChildren(...children.filter(child => child != null));
  const heading = panel.querySelector("h2");
  heading.tabIndex = -1;
  if (isHere) heading.focus();
  panel.scrollTop = 0;
}
function table(rows) {
  return make("table", {}, ...rows.filter(Boolean).map(([name, value]) => make("tr", {},
    make("th", { scope: "row" }, name), make("td", { class: "number" }, typeof value === "number" ? number(value) : value))));
}
const fullName = n => data.spaces.length > 1 ? nodes.key[n] : nodes.name[n];
const goTo = n => make("button", { type: "button", class: "go", onclick: () => chooseNode(n, true) }, fullName(n));

function describeAll() {
  const most = busy.slice(0, 12).filter(n => weight[n] > 0);
  const strong = strongest(pairs.map((_, p) => p), 1, total).slice(0, 8);
  show(make("h2", {}, "Nothing chosen"),
    make("p", { class: "soft" }, "Click a tool or an arrow, search for a name, or start here."),
    data.diff ? make("p", {}, diffText()) : null,
    most.length ? make("h3", {}, "Tools called most") : null,
    make("ul", {}, ...most.map(n => make("li", {}, goTo(n), make("span", { class: "count" }, number(calls(n)))))),
    strong.length ? make("h3", {}, "Strongest arrows") : null,
    make("ul", {}, ...strong.map(p => make("li", {}, goPair(p), make("span", { class: "count" }, number(total(p)))))));
}
const goPair = p => make("button", { type: "button", class: "go", onclick: () => { chooseNode(pairs[p].source, true); choosePair(p); } },
  `${nodes.name[pairs[p].source]} \u2192 ${nodes.name[pairs[p].target]}`);

function diffText() {
  const t = data.diff.tools, e = data.diff.edges;
  return `Since version ${(data.diff.from || "nothing").slice(0, 12)}: ${plural(t.added, "tool")} came, ${number(t.removed)} went, `
    + `${number(t.changed)} changed, ${number(t.renamed)} renamed; ${plural(e.added, "edge")} came, ${number(e.removed)} went, `
    + `${number(e.strengthened)} seen more often, ${number(e.weakened)} less often.`;
}

function describeNode(n) {
  const parameters = nodes.parameters[n];
  const ways = (title, out) => {
    const rows = around[n].filter(p => (out ? pairs[p].source : pairs[p].target) === n && pairs[p].source !== pairs[p].target)
      .map(p => [total(p), p]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    return [make("h3", {}, `${title} (${number(rows.length)})`),
      rows.length ? make("ul", {}, ...rows.slice(0, 10).map(([count, p]) => make("li", {},
        goTo(out ? pairs[p].target : pairs[p].source),
        standingBadge(p), make("button", { type: "button", class: "count", title: "Evidence of this arrow", "aria-label": `Evidence: seen ${count} times`, onclick: () => choosePair(p) }, number(count)))))
        : make("p", { class: "soft" }, "None."),
      rows.length > 10 ? make("p", { class: "note" }, `and ${number(rows.length - 10)} more`) : null];
  };
  show(make("h2", {}, nodes.name[n]),
    make("p", {}, make("span", { class: "soft" }, data.spaces[nodes.space[n]] + " "),
      nodes.status[n] !== "active" ? make("span", { class: "badge" }, nodes.status[n]) : null,
      nodes.change && nodes.change[n] ? make("span", { class: "badge" }, changeText(n)) : null),
    nodes.description[n] ? make("p", { class: "text" }, nodes.description[n]) : make("p", { class: "soft" }, "No description."),
    make("h3", {}, "Calls"),
    table([["succeeded", nodes.ok[n]], ["without recorded result", nodes.unrecorded[n]], ["failed", nodes.failed[n]],
      nodes.repeats[n] != null && ["again at once", nodes.repeats[n]], nodes.retries[n] != null && ["of these after a failure", nodes.retries[n]]]),
    ...ways("Used next, strongest first", true), ...ways("Used before, strongest first", false),
    make("h3", {}, `Parameters (${parameters.length})`),
    parameters.length ? make("table", {}, ...parameters.map(([name, type, required, text]) => make("tr", {},
      make("td", {}, make("b", {}, name), make("span", { class: "soft" }, ` ${type}${required ? ", required" : ""}`),
        text ? make("div", {}, text) : null)))) : make("p", { class: "soft" }, "None stated."),
    nodes.takes[n].length ? make("p", {}, make("span", { class: "soft" }, "takes "), nodes.takes[n].join(", ")) : null,
    nodes.gives[n].length ? make("p", {}, make("span", { class: "soft" }, "gives "), nodes.gives[n].join(", ")) : null);
}
function changeText(n) {
  const old = data.diff.was[n];
  return nodes.change[n] === "renamed" ? `renamed, was ${old}` : CHANGES[nodes.change[n]].says;
}
function standingBadge(p) {
  const held = ["dependency", "stated", "warning", "fallback"].find(s => pairs[p].edges.some(e => standingName(e) === s));
  return held === "warning" || held === "fallback" ? make("span", { class: "badge" }, held) : null;
}

function describePair(p) {
  const pair = pairs[p];
  show(make("h2", {}, `${nodes.name[pair.source]} \u2192 ${nodes.name[pair.target]}`),
    make("p", {}, goTo(pair.source), goTo(pair.target)),
    ...pair.edges.flatMap(e => {
      const held = standingName(e), success = edges.ok[e] + edges.unrecorded[e];
      const change = changeOf(e), counts = data.diff ? data.diff.counts[e] : null;
      const runs = data.trajectories ? data.trajectories[e] || [] : [];
      return [make("h3", {}, kindName(e) + " ", held === "dependency" ? null : make("span", { class: "badge" }, held),
        change ? make("span", { class: "badge" }, CHANGES[change].says + (counts ? ` (${number(counts[0])} \u2192 ${number(counts[1])})` : "")) : null),
        make("p", { class: "soft" }, `${(KINDS[kindName(e)] || {}).says || ""}; ${STANDINGS[held].says}`),
        table([edges.probability[e] != null && ["probability", edges.probability[e].toFixed(2)],
          ["seen", edges.seen[e]], !isStated(e) && ["second tool succeeded", edges.ok[e]],
          !isStated(e) && ["second tool, result not recorded", edges.unrecorded[e]],
          !isStated(e) && ["second tool failed", edges.failed[e]],
          !isStated(e) && ["first tool had failed", edges.after[e]],
          !isStated(e) && ["learnt from", edges.learning[e]],
          !isStated(e) && ["held out for tests", success - edges.learning[e]],
          ["weight, decayed", edges.weight[e].toFixed(2)],
          ["first seen", edges.first[e] < 0 ? "no date" : dayText(edges.first[e])],
          ["last seen", edges.last[e] < 0 ? "no date" : dayText(edges.last[e])]]),
        runs.length ? make("p", { class: "soft" }, "trajectories: " + runs.join(", ")) : null];
    }));
}
function describeResource(r) {
  const near = data.resources.links.filter(link => link[0] === r);
  const list = given => make("ul", {}, ...near.filter(link => Boolean(link[2]) === given).map(link => make("li", {}, goTo(link[1]))));
  show(make("h2", {}, data.resources.name[r]), make("p", { class: "soft" }, "a type of value"),
    make("h3", {}, "Given by"), list(true), make("h3", {}, "Taken by"), list(false));
}

// --- controls ----------------------------------------------------------------------------------

const HEADS = { triangle: "M33 5l-9-4v8z", tee: "M30 0h3v10h-3z", vee: "M33 5l-9-5l3 5l-3 5z" };
function sample(colour, dash, arrow) {
  return make("svg", { width: 34, height: 10, "aria-hidden": "true" },
    make("line", { x1: 0, y1: 5, x2: arrow ? 26 : 34, y2: 5, style: `stroke: var(--${colour})`, "stroke-width": 3, "stroke-dasharray": dash ? dash.join(" ") : false }),
    arrow ? make("path", { d: HEADS[arrow], style: `fill: var(--${colour})` }) : null);
}
function tick(box, name, picture, count, says) {
  const input = make("input", { type: "checkbox", checked: "", value: name, onchange: refresh });
  box.append(make("label", { title: says }, input, picture, make("span", {}, name), make("span", { class: "count" }, number(count))));
}
function fillControls() {
  const facts = Object.entries(data.facts).map(([name, value]) => make("span", {}, name + " ", make("b", {}, String(value))));
  byId("facts").replaceChildren(...facts);
  const count = test => { let times = 0; for (let e = 0; e < LINES; e++) if (test(e)) times++; return times; };
  for (const [box, names] of [["kinds", data.kinds], ["standings", data.standings]]) byId(box).parentElement.hidden = !names.length;
  byId("kinds").replaceChildren();
  rank.concat(data.kinds.filter(kind => !rank.includes(kind))).filter(kind => data.kinds.includes(kind)).forEach(kind =>
    tick(byId("kinds"), kind, sample(KINDS[kind] ? kind : "adjacent", (KINDS[kind] || {}).dash), count(e => kindName(e) === kind), (KINDS[kind] || {}).says));
  byId("standings").replaceChildren();
  Object.keys(STANDINGS).filter(held => data.standings.includes(held)).forEach(held =>
    tick(byId("standings"), held, sample(STANDINGS[held].dash ? held : "soft", STANDINGS[held].dash, STANDINGS[held].arrow),
      count(e => standingName(e) === held), STANDINGS[held].says));
  byId("meanings").replaceChildren(...[...data.kinds.map(kind => [kind, KINDS[kind]]), ...data.standings.map(held => [held, STANDINGS[held]])]
    .flatMap(([name, look]) => [make("dt", {}, name), make("dd", {}, look ? look.says : "")]));
  if (data.spaces.length > 1) {
    byId("spaces-box").hidden = false;
    byId("spaces").replaceChildren();
    const sizes = new Array(data.spaces.length).fill(0);
    nodes.space.forEach(space => sizes[space]++);
    data.spaces.forEach((name, s) => tick(byId("spaces"), name, spaceSample(s), sizes[s], name));
  }
  byId("num-untimed").textContent = number(numUntimed);
  byId("timed").hidden = days.num === 0;
  byId("no-days").hidden = days.num > 0;
  for (const [id, value] of [["from", 0], ["to", Math.max(days.num - 1, 0)]]) {
    Object.assign(byId(id), { min: 0, max: Math.max(days.num - 1, 0), value });
    byId(id).setAttribute("value", value);
  }
  byId("least").max = maxSeen;
  [...byId("most").options].forEach(option => option.toggleAttribute("selected", Number(option.value) === state.most));
  byId("resource-switch").hidden = !data.resources;
  if (data.diff) {
    byId("changes").hidden = false;
    const { tools, edges: lines } = data.diff;
    byId("change-legend").replaceChildren(...Object.entries(CHANGES).map(([change, look]) => {
      const parts = [tools[change] != null ? plural(tools[change], "tool") : null, lines[change] != null ? plural(lines[change], "edge") : null];
      return make("div", {}, sample(change === "changed" ? "weakened" : change, look.dash), make("span", { class: "name" }, `${look.sign} ${look.says}`),
        make("span", { class: "count" }, parts.filter(Boolean).join(", ")));
    }));
  }
}
function spaceSample(s) {
  const paths = ["M2 6a5 5 0 1 0 10 0a5 5 0 1 0-10 0", "M2 1h10v10h-10z", "M7 0l7 6l-7 6l-7-6z", "M7 0l6 11h-12z",
    "M4 1h6l4 5l-4 5h-6l-4-5z", "M7 0l7 5l-3 7h-8l-3-7z", "M1 1l6 3l6-3l-6 11z", "M7 0l2 4h5l-4 3l2 5l-5-3l-5 3l2-5l-4-3h5z"];
  return make("svg", { width: 16, height: 13, "aria-hidden": "true" }, make("path", { d: paths[s % 8], style: `fill: ${colours.hues[s % 8]}` }));
}
function drawHistogram() {
  const box = byId("histogram"), bins = Math.min(days.num, 60);
  if (!bins) return;
  const heights = new Array(bins).fill(0);
  perDay.forEach((count, day) => { heights[Math.floor(day * bins / days.num)] += count; });
  const top = Math.max(1, ...heights);
  box.setAttribute("viewBox", `0 0 ${bins * 10} 40`);
  box.setAttribute("aria-label", `Evidence by day from ${dayText(0)} to ${dayText(days.num - 1)}`);
  box.replaceChildren(...heights.map((count, bin) => {
    const day = bin * days.num / bins, high = count ? Math.max(2, 38 * count / top) : 0;
    const on = day + days.num / bins > state.from && day <= state.to;
    return make("rect", { x: bin * 10 + 1, y: 40 - high, width: 8, height: high, class: on ? "on" : false });
  }));
}

function refresh() {
  Object.assign(state, { kinds: new Set(), standings: new Set(), spaces: new Set() });
  byId("kinds").querySelectorAll("input:checked").forEach(input => state.kinds.add(input.value));
  byId("standings").querySelectorAll("input:checked").forEach(input => state.standings.add(input.value));
  if (data.spaces.length > 1) byId("spaces").querySelectorAll("input").forEach((input, s) => input.checked && state.spaces.add(s));
  else state.spaces.add(0);
  read();
}
function read() {
  state.from = Number(byId("from").value);
  state.to = Number(byId("to").value);
  state.untimed = byId("untimed").checked;
  state.least = Math.max(1, Number(byId("least").value) || 1);
  state.most = Number(byId("most").value);
  state.linked = byId("linked").checked;
  state.byChange = Boolean(data.diff) && byId("by-change").checked;
  state.onlyChanges = Boolean(data.diff) && byId("only-changes").checked;
  state.resources = byId("resources").checked;
  if (days.num) {
    byId("from-day").textContent = dayText(state.from);
    byId("to-day").textContent = dayText(state.to);
  }
  drawHistogram();
  apply();
}
byId("controls").addEventListener("submit", event => event.preventDefault());
byId("controls").addEventListener("reset", () => setTimeout(refresh));
for (const id of ["untimed", "least", "most", "linked", "by-change", "only-changes", "resources"]) {
  byId(id).addEventListener("change", read);
}
byId("from").addEventListener("input", () => {
  if (Number(byId("from").value) > Number(byId("to").value)) byId("to").value = byId("from").value;
  read();
});
byId("to").addEventListener("input", () => {
  if (Number(byId("to").value) < Number(byId("from").value)) byId("from").value = byId("to").value;
  read();
});
for (const [id, on] of [["all-spaces", true], ["no-spaces", false]]) {
  byId(id).addEventListener("click", () => {
    byId("spaces").querySelectorAll("input").forEach(input => { input.checked = on; });
    refresh();
  });
}

const found = byId("found"), search = byId("search");
function matches() {
  const text = search.value.trim().toLowerCase();
  if (!text) return [];
  const good = [];
  nodes.key.forEach((key, n) => {
    const name = nodes.name[n].toLowerCase(), at = name.indexOf(text);
    if (at >= 0 || key.toLowerCase().includes(text)) good.push([name === text ? 0 : at === 0 ? 1 : at > 0 ? 2 : 3, -weight[n], n]);
  });
  return good.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]).map(row => row[2]);
}
search.addEventListener("input", () => {
  const rows = matches();
  found.replaceChildren(...rows.slice(0, 12).map(n => make("li", {}, goTo(n))));
  if (rows.length > 12) found.append(make("li", { class: "note" }, `and ${number(rows.length - 12)} more`));
  if (search.value.trim() && !rows.length) found.append(make("li", { class: "note" }, "No tool of that name."));
});
search.addEventListener("keydown", event => {
  const rows = matches();
  if (event.key === "Enter" && rows.length) {
    event.preventDefault();
    chooseNode(rows[0], true);
  } else if (event.key === "ArrowDown" && found.querySelector("button")) {
    event.preventDefault();
    found.querySelector("button").focus();
  }
});
found.addEventListener("keydown", event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const buttons = [...found.querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement) + step;
  (buttons[at] || (at < 0 ? search : buttons[buttons.length - 1])).focus();
});

const middle = () => ({ x: cy.width() / 2, y: cy.height() / 2 });
const zoomBy = factor => cy.zoom({ level: cy.zoom() * factor, renderedPosition: middle() });
function fit() {
  const box = cy.nodes().not(".off").boundingBox({ includeOverlays: false });
  const side = Math.min(70, cy.width() / 8), zoom = Math.min(1.5, (cy.width() - 2 * side) / box.w, (cy.height() - 80) / box.h);
  wholeZoom = zoom;
  cy.viewport({ zoom, pan: { x: cy.width() / 2 - (box.x1 + box.w / 2) * zoom, y: (cy.height() - 30) / 2 - (box.y1 + box.h / 2) * zoom } });
}
byId("in").addEventListener("click", () => zoomBy(1.35));
byId("out").addEventListener("click", () => zoomBy(1 / 1.35));
byId("fit").addEventListener("click", fit);
document.addEventListener("keydown", event => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "Escape") clear();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    byId("side").open = true;
    search.focus();
  } else if (event.key === "+" || event.key === "=") zoomBy(1.35);
  else if (event.key === "-") zoomBy(1 / 1.35);
  else if (event.key === "0") fit();
  else if (document.activeElement === byId("graph") && event.key.startsWith("Arrow")) {
    event.preventDefault();
    const by = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    cy.panBy({ x: by[0], y: by[1] });
  }
});
dark.addEventListener("change", () => {
  readColours();
  fillControls();
  paint();
  refresh();
});

fillControls();
paint();
if (matchMedia("(max-width: 1000px)").matches) byId("side").open = false;
read();
fit();
describeAll();
document.documentElement.dataset.ready = "yes";
})();
