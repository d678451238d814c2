// An object as YAML: look at it, change it, check the change on the server, save it.

import { html, nothing } from "../lit.js";
import { call, path, warningsOf } from "../session.js";
import { redraw } from "../redraw.js";
import { may } from "../rights.js";

const MOST_DIFF_LINES = 4000;
let state = blank("");

function blank(key) {
  return { key, text: null, edited: null, problem: "", checked: null, warnings: [], saved: false };
}

/** Draw the editor of one object: `{version, plural, namespace, name}`. */
export function yamlEditor(object) {
  const { version, plural, namespace, name } = object;
  const key = path(version, plural, namespace, name);
  if (state.key !== key) {
    state = blank(key);
    load(key);
  }
  const group = version.includes("/") ? version.split("/")[0] : "";
  const editable = may("update", plural, namespace, { group, name });
  if (state.text === null) return state.problem ? html`<p role="alert" class="notice bad">${state.problem}</p>` : html`<p role="status" class="dim">Loading …</p>`;
  const isChanged = state.edited !== state.text;
  return html`<div class="controls">
      <button @click=${() => reload(key)}>Load again</button>
      ${editable ? html`<button ?disabled=${!isChanged} @click=${() => check(key)}>Check on the server</button>
        <button class="primary" ?disabled=${!state.checked || state.checked.edited !== state.edited} @click=${() => save(key)}>Save</button>` : html`<span class="dim">You may not change it.</span>`}
    </div>
    ${state.problem ? html`<p role="alert" class="notice bad">${state.problem}</p>` : nothing}
    ${state.warnings.map((each) => html`<p class="notice">${each}</p>`)}
    ${state.saved ? html`<p role="status" class="notice good">Saved.</p>` : nothing}
    ${state.checked ? html`<h2>What would change</h2><pre class="diff" tabindex="0" role="region" aria-label="What would change">${state.checked.lines.map(([sign, line]) => html`<div class=${{ "+": "added", "-": "removed" }[sign] ?? ""}>${sign} ${line}</div>`)}</pre>` : nothing}
    <textarea class="yaml" aria-label="YAML of ${name}" spellcheck="false" ?readonly=${!editable} .value=${state.edited} @input=${(event) => { state.edited = event.target.value; state.saved = false; redraw(); }}></textarea>`;
}

async function load(key) {
  const mine = state;
  try {
    mine.text = mine.edited = await read(key);
  } catch (error) {
    mine.problem = error.message;
  }
  redraw();
}

function reload(key) {
  state = blank(key);
  load(key);
  redraw();
}

async function read(key) {
  const response = await call(key, { headers: { Accept: "application/yaml" } });
  return withoutManagers(await response.text());
}

/** Ask the server what would be stored, with everything but the write. */
async function check(key) {
  const mine = state;
  Object.assign(mine, { problem: "", checked: null, warnings: [], saved: false });
  try {
    const [before, after] = [await read(key), await put(key, mine.edited, { dryRun: "All" })];
    mine.checked = { edited: mine.edited, lines: difference(before, withoutManagers(await after.text())) };
    mine.warnings = warningsOf(after);
    if (!mine.checked.lines.length) mine.checked.lines = [[" ", "Nothing."]];
  } catch (error) {
    mine.problem = error.message;
  }
  redraw();
}

async function save(key) {
  const mine = state;
  try {
    const response = await put(key, mine.edited, {});
    mine.text = mine.edited = withoutManagers(await response.text());
    Object.assign(mine, { problem: "", checked: null, saved: true, warnings: warningsOf(response) });
  } catch (error) {
    mine.problem = error.message;
  }
  redraw();
}

function put(key, body, query) {
  const headers = { "Content-Type": "application/yaml", Accept: "application/yaml" };
  return call(key, { method: "PUT", headers, body, query: { fieldValidation: "Strict", fieldManager: "kedge-dashboard", ...query } });
}

/** Leave out the owners of fields. The server keeps them if they are missing. */
export function withoutManagers(text) {
  const kept = [];
  let inside = false;
  for (const line of text.split("\n")) {
    if (/^  managedFields:/.test(line)) inside = true;
    else if (inside && /^( {0,2}[^\s-]|\S)/.test(line)) inside = false;
    if (!inside) kept.push(line);
  }
  return kept.join("\n");
}

/** Return the lines that differ, each with two lines around it: pairs of sign and line. */
export function difference(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  if (a.length > MOST_DIFF_LINES || b.length > MOST_DIFF_LINES) return [[" ", "The object is too long to be compared."]];
  const all = compared(a, b);
  return all.filter(([sign], at) => sign !== " " || all.slice(Math.max(0, at - 2), at + 3).some(([other]) => other !== " "));
}

function compared(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(a.slice(0, start)), ...longest(x, y), ...same(a.slice(a.length - end))];
}

/** Compare by the longest common subsequence. */
function longest(x, y) {
  const width = y.length + 1;
  const lengths = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      lengths[i * width + j] = x[i] === y[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  const lines = [];
  let [i, j] = [0, 0];
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      lines.push([" ", x[i]]);
      i += 1;
      j += 1;
    } else if (i < x.length && (j === y.length || lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) lines.push(["-", x[i++]]);
    else lines.push(["+", y[j++]]);
  }
  return lines;
}
