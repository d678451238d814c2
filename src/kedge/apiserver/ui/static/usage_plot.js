// The plot of one resource over one window: its course and its statistics, with request and limit.

import { html, nothing } from "./lit.js";
import "./plot.js";
import { age, format, number } from "./quantity.js";
import { card } from "./parts.js";
import { redraw } from "./redraw.js";

/** Seconds of each window. */
export const WINDOWS = { "10s": 10, "1m": 60, "1h": 3600, "1d": 86400 };
const FIGURES = [["mean", "part-0"], ["95th", "part-1"], ["max", "part-3"]];
const NAMES = { cpu: "CPU", memory: "Memory" };
const SHORTEST_SECONDS = 60;
const YOUNG_SECONDS = 300;

/** Return the window to begin with: the last minute of what started lately, else the last hour. */
export function firstWindow(started) {
  return (Date.now() - Date.parse(started)) / 1000 < YOUNG_SECONDS ? "1m" : "1h";
}

/** Draw the buttons that choose a window; `pick` gets the chosen one. */
export function windowChoice(chosen, pick) {
  return html`<div class="choices" role="group" aria-label="Window">${Object.keys(WINDOWS).map((each) => html`<button aria-pressed=${each === chosen ? "true" : "false"} @click=${() => { pick(each); redraw(); }}>${each}</button>`)}</div>`;
}

/** Draw the card of a resource: `{resource, window, statistics, history, missing, request, limit, capacity,
 *  marks, now}`. A limit or a capacity is a red line. */
export function usageCard({ now = nothing, missing = "", ...plot }) {
  const show = format(plot.resource);
  const figures = FIGURES.map(([name, color]) => ({ name, color, value: number(plot.statistics?.[name]?.[plot.resource]) }));
  const [top, end] = plot.capacity === undefined ? ["limit", plot.limit] : ["capacity", plot.capacity];
  return card(
    NAMES[plot.resource],
    html`<k-plot .content=${plotContent({ ...plot, figures, top, end })}></k-plot>
      <ul class="legend">${figures.map((each) => html`<li><span class="dot ${each.color}" aria-hidden="true"></span>${each.name} <strong>${show(each.value)}</strong></li>`)}
        <li><span class="dot limit" aria-hidden="true"></span>${top} <strong>${end === undefined ? "none" : show(end)}</strong></li>
        <li><span class="dot request" aria-hidden="true"></span>${plot.capacity === undefined ? "request" : "requested"} <strong>${plot.request === undefined ? "none" : show(plot.request)}</strong></li></ul>
      ${plot.statistics?.starttime ? html`<p class="dim">Measured for ${age(plot.statistics.starttime)}; the window is ${plot.window}.</p>` : nothing}
      ${missing ? html`<p class="dim">${missing}</p>` : nothing}`,
    now,
  );
}

/** Return the content of a plot. Full lines are the course; dashed lines are the statistics of the whole
 *  window, which have one value each. The axis begins with the first measurement. */
function plotContent({ resource, window, statistics, history, figures, request, top, end, marks }) {
  const course = history?.[window === "10s" ? "1m" : window];
  const last = statistics ? Date.parse(statistics.endtime) / 1000 : Date.now() / 1000;
  const since = statistics?.starttime ? Date.parse(statistics.starttime) / 1000 : -Infinity;
  const begin = Math.min(Math.max(last - WINDOWS[window], since), last - Math.min(SHORTEST_SECONDS, WINDOWS[window]));
  const times = course?.[resource] ? courseTimes(course, resource) : [begin, last];
  const flat = (value) => times.map((time) => (value === undefined || time < since ? null : value));
  const whole = (value) => times.map(() => value);
  const lines = [];
  for (const { name, color, value } of figures) {
    const values = course?.[resource]?.[name];
    if (values) lines.push({ label: name, color, values, width: name === "mean" ? 2 : 1, fill: name === "mean" });
    lines.push({ label: `${name} of ${window}`, color, values: flat(value), width: 1.2, dash: [6, 4] });
  }
  if (end !== undefined) lines.push({ label: top, color: "bad-fill", values: whole(end), width: 2 });
  if (request !== undefined) lines.push({ label: "request", color: "dim", values: whole(request), width: 1, dash: [2, 3] });
  const show = format(resource);
  const words = figures.map((each) => `${each.name} ${show(each.value)}`).join(", ");
  return { lines, times, marks, show, range: [begin, last], binary: resource === "memory", label: `${resource} over ${window}: ${words}, ${top} ${end === undefined ? "none" : show(end)}` };
}

/** A point stands for the time up to it. */
export function courseTimes(course, resource) {
  const [start, step] = [Date.parse(course.starttime) / 1000, Number.parseInt(course.step, 10)];
  return course[resource].mean.map((_, at) => start + (at + 1) * step);
}
