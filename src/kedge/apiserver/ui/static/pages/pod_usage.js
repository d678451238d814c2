// The usage of a pod: its four windows as plots, with restarts and events on the same time axis.

import { html, nothing } from "../lit.js";
import "../plot.js";
import { watched } from "../cluster.js";
import { meter } from "../meter.js";
import { amounts, lasting, used, windowOf } from "../pods.js";
import { age, format, number } from "../quantity.js";
import { get, path } from "../session.js";
import { changed, redraw } from "../redraw.js";
import { card, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";

const WINDOWS = { "10s": 10, "1m": 60, "1h": 3600, "1d": 86400 };
const HISTORY_MS = 10000;
const view = { window: "1h", container: "" };
let history = { key: "", asked: 0, document: null, missing: "" };

export function usageTab(pod) {
  const { namespace, name } = pod.metadata;
  const watch = watched("metrics/v1alpha1", "pods", namespace, { fieldSelector: `metadata.name=${name}` });
  const usage = watch.get(namespace, name);
  const events = eventsOf(pod);
  follow(pod);
  return html`${problem(watch)}
    ${watch.state === "live" && !usage ? html`<p class="notice">Nothing has been measured yet. Usage appears ten seconds after the start of a container.</p>` : nothing}
    ${controls(pod)}
    <div class="plots">${["cpu", "memory"].map((resource) => plotCard(pod, usage, resource, events))}</div>
    ${card("Events and restarts", eventTable(pod, events))}`;
}

function controls(pod) {
  const containers = lasting(pod.spec).map((each) => each.name);
  if (!containers.includes(view.container)) view.container = "";
  const choice = (key, label, options) => html`<label>${label} <select @change=${(event) => { view[key] = event.target.value; redraw(); }}>${options.map(([value, text]) => html`<option value=${value} ?selected=${view[key] === value}>${text}</option>`)}</select></label>`;
  return html`<div class="controls">
    <div class="choices" role="group" aria-label="Window">${Object.keys(WINDOWS).map((each) => html`<button aria-pressed=${each === view.window ? "true" : "false"} @click=${() => { view.window = each; redraw(); }}>${each}</button>`)}</div>
    ${containers.length > 1 ? choice("container", "Container", [["", "whole pod"], ...containers.map((each) => [each, each])]) : nothing}
  </div>`;
}

/** Ask for the course of the last day now and then, while this page is shown. */
function follow(pod) {
  const { namespace, name, uid } = pod.metadata;
  if (history.key !== uid) history = { key: uid, asked: 0, document: null, missing: "" };
  if (Date.now() - history.asked < HISTORY_MS) return;
  history.asked = Date.now();
  const mine = history;
  get(path("metrics/v1alpha1", "pods", namespace, name), { history: "true" }).then(
    (document) => {
      mine.document = document;
      const known = document.history ?? document.containers?.some((each) => each.history);
      mine.missing = known ? "" : "The node of this pod does not tell the course of the last day.";
      changed();
    },
    (error) => {
      mine.missing = error.code === 404 ? "" : error.message;
      changed();
    },
  );
}

/** Return statistics, course, request and limit of what is chosen: a container, or the whole pod. */
function subject(pod, usage, resource) {
  const own = view.container || (lasting(pod.spec).length === 1 ? lasting(pod.spec)[0].name : "");
  const measured = (document) => document?.containers?.find((each) => each.metadata.name === own);
  if (!own) return { statistics: windowOf(usage, view.window), course: history.document?.history, ...amounts(pod.spec, resource) };
  const spec = lasting(pod.spec).find((each) => each.name === own);
  return {
    statistics: measured(usage)?.metrics[view.window],
    course: measured(history.document)?.history,
    request: number(spec?.resources?.requests?.[resource]),
    limit: number(spec?.resources?.limits?.[resource]),
  };
}

function plotCard(pod, usage, resource, events) {
  const show = format(resource);
  const { statistics, course, request, limit } = subject(pod, usage, resource);
  const value = (name) => number(statistics?.[name]?.[resource]);
  const figures = [["mean", "part-0"], ["95th", "part-1"], ["max", "part-3"]].map(([name, color]) => ({ name, color, value: value(name) }));
  const content = plotContent({ resource, course: course?.[view.window === "10s" ? "1m" : view.window], figures, request, limit, marks: marksOf(pod, events), statistics });
  return card(
    resource === "cpu" ? "CPU" : "Memory",
    html`<k-plot .content=${content}></k-plot>
      <ul class="legend">${figures.map((each) => html`<li><span class="dot ${each.color}" aria-hidden="true"></span>${each.name} <strong>${show(each.value)}</strong></li>`)}
        <li><span class="dot limit" aria-hidden="true"></span>limit <strong>${show(limit)}</strong></li>
        <li><span class="dot request" aria-hidden="true"></span>request <strong>${show(request)}</strong></li></ul>
      ${statistics?.starttime ? html`<p class="dim">Measured for ${age(statistics.starttime)} of this window.</p>` : nothing}
      ${history.missing ? html`<p class="dim">${history.missing}</p>` : nothing}`,
    html`<span class="now">${meter(resource, { used: used(usage, resource), ...amounts(pod.spec, resource) })}</span>`,
  );
}

/** Return the content of a plot. Thin lines are the course; dashed lines are the statistics of the
 *  whole window, which have one value each. */
function plotContent({ resource, course, figures, request, limit, marks, statistics }) {
  const end = statistics ? Date.parse(statistics.endtime) / 1000 : Date.now() / 1000;
  const range = [end - WINDOWS[view.window], end];
  const step = course ? Number.parseInt(course.step, 10) : WINDOWS[view.window];
  const first = course ? Date.parse(course.starttime) / 1000 : range[0];
  const count = course ? course[resource].mean.length : 2;
  // A point stands for the time up to it.
  const times = Array.from({ length: count }, (_, at) => (course ? first + (at + 1) * step : range[at]));
  const flat = (value) => times.map((time) => (value === undefined || (statistics?.starttime && time < Date.parse(statistics.starttime) / 1000) ? null : value));
  const lines = [];
  for (const { name, color, value } of figures) {
    const values = course?.[resource]?.[name];
    if (values) lines.push({ label: name, color, values, width: name === "mean" ? 2 : 1, fill: name === "mean" });
    lines.push({ label: `${name} of ${view.window}`, color, values: flat(value), width: 1.2, dash: [6, 4] });
  }
  const whole = (value) => times.map(() => value ?? null);
  if (limit !== undefined) lines.push({ label: "limit", color: "bad-fill", values: whole(limit), width: 2 });
  if (request !== undefined) lines.push({ label: "request", color: "dim", values: whole(request), width: 1, dash: [2, 3] });
  const show = format(resource);
  const words = figures.map((each) => `${each.name} ${show(each.value)}`).join(", ");
  return { lines, times, marks, show, range, binary: resource === "memory", label: `${resource} over ${view.window}: ${words}, limit ${limit === undefined ? "none" : show(limit)}` };
}

// Events and restarts.

function eventsOf(pod) {
  const { namespace, name } = pod.metadata;
  if (!may("list", "events", namespace)) return null;
  const watch = watched("v1", "events", namespace, { fieldSelector: `involvedObject.name=${name},involvedObject.kind=Pod` });
  return watch.all.map((each) => ({ ...each, time: each.lastTimestamp ?? each.eventTime ?? each.metadata.creationTimestamp })).sort((a, b) => (a.time < b.time ? 1 : -1));
}

function startsOf(pod) {
  const found = [];
  for (const each of pod.status?.containerStatuses ?? []) {
    const ended = each.lastState?.terminated;
    if (ended) found.push({ time: ended.finishedAt, type: "Warning", reason: ended.reason, message: `${each.name} ended with exit code ${ended.exitCode}`, count: 1 });
    if (each.restartCount && each.state?.running) found.push({ time: each.state.running.startedAt, type: "Normal", reason: "Restarted", message: `${each.name}, restart ${each.restartCount}`, count: 1 });
  }
  return found;
}

function marksOf(pod, events) {
  return [...(events ?? []), ...startsOf(pod)].filter((each) => each.time).map((each) => ({ time: Date.parse(each.time) / 1000, tone: each.type === "Warning" ? "bad" : "link" }));
}

function eventTable(pod, events) {
  if (events === null) return html`<p class="dim">You may not list events of this namespace.</p>`;
  const all = [...events, ...startsOf(pod)].filter((each) => each.time).sort((a, b) => (a.time < b.time ? 1 : -1));
  if (!all.length) return html`<p class="dim">None in the last hour.</p>`;
  return plainTable("Events and restarts", ["Age", "Type", "Reason", "Message"], all.map((each) => [age(each.time), each.type, each.reason, html`${each.message}${each.count > 1 ? html` <span class="dim">×${each.count}</span>` : nothing}`]));
}
