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

const SHORT = 24;

/** Draw a plain table: `head` are texts, `rows` arrays of cells. On a phone, each row becomes a list of
 *  its cells, with their heads; the roles keep it a table for screen readers. Short texts are not broken. */
export function plainTable(caption, head, rows) {
  const isShort = (cell) => typeof cell === "number" || (typeof cell === "string" && cell.length <= SHORT);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table role="table" aria-label=${caption}>
    <thead role="rowgroup"><tr role="row">${head.map((each) => html`<th role="columnheader" scope="col">${each}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((cells) => html`<tr role="row">${cells.map((cell, at) => html`<td role="cell" class=${isShort(cell) ? "short" : ""} data-head=${head[at]}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** Characters that turn the direction of writing: with them a text can look like another one. */
const DIRECTIONS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Return a text of a container or tenant as a page can show it: not longer than this, and from left to
 *  right. */
export function clipped(text, most = 1000) {
  const shown = text.slice(0, most).replace(DIRECTIONS, "\ufffd");
  return text.length > most ? `${shown} … (${text.length - most} more characters)` : shown;
}
