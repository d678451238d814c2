// Small parts of pages.

import { html, nothing } from "./lit.js";

/** Say why a list cannot be shown, or is not up to date. */
export function problem(watch) {
  if (watch.state === "loading") return html`<p role="status" class="dim">Loading …</p>`;
  if (watch.state === "live") return nothing;
  return html`<p role="alert" class="notice bad">${watch.error?.message ?? "The server cannot be reached."}${watch.state === "retrying" ? " Trying again …" : ""}</p>`;
}

export function badge(text, tone) {
  return html`<span class="badge ${tone}">${text}</span>`;
}

/** Draw a definition list of pairs; pairs without a value are left out. */
export function facts(pairs) {
  return html`<dl class="facts">${pairs.filter(([, value]) => value !== undefined && value !== "" && value !== nothing).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function card(title, content, extra = nothing) {
  return html`<section class="card"><h2>${title}${extra}</h2>${content}</section>`;
}

/** Draw a plain table: `head` are texts, `rows` arrays of cells. */
export function plainTable(caption, head, rows) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <thead><tr>${head.map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}
