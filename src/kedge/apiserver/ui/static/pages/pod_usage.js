// The usage of a pod: its four windows as plots, with restarts and events on the same time axis.

import { html, nothing } from "../lit.js";
import { watched } from "../cluster.js";
import { Course } from "../course.js";
import { meter } from "../meter.js";
import { amounts, endText, lasting, used, windowOf } from "../pods.js";
import { age, number } from "../quantity.js";
import { path } from "../session.js";
import { redraw } from "../redraw.js";
import { badge, card, clipped, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";
import { firstWindow, usageCard, windowChoice } from "../usage_plot.js";
import { containerCard } from "./pod_containers.js";

const MOST_EVENTS = 100;
const view = { window: "", container: "" };
const course = new Course(10000);

export function usageTab(pod) {
  const { namespace, name, uid } = pod.metadata;
  const watch = watched("metrics/v1alpha1", "pods", namespace, { fieldSelector: `metadata.name=${name}` });
  const usage = watch.get(namespace, name);
  const events = eventsOf(pod);
  const document = course.of(uid, path("metrics/v1alpha1", "pods", namespace, name));
  return html`${problem(watch)}
    ${watch.state === "live" && !usage ? html`<p class="notice">Nothing has been measured yet. Usage appears ten seconds after the start of a container.</p>` : nothing}
    ${controls(pod)}
    <div class="plots">${["cpu", "memory"].map((resource) => plotCard(pod, { usage, document, resource, events }))}</div>
    ${containerCard(pod)}
    ${card("Events and restarts", eventTable(pod, events))}`;
}

function windowFor(pod) {
  return view.window || firstWindow(pod.metadata.creationTimestamp);
}

function controls(pod) {
  const containers = lasting(pod.spec).map((each) => each.name);
  if (!containers.includes(view.container)) view.container = "";
  const options = [["", "whole pod"], ...containers.map((each) => [each, each])];
  const pick = (event) => {
    view.container = event.target.value;
    redraw();
  };
  return html`<div class="controls">
    ${windowChoice(windowFor(pod), (window) => (view.window = window))}
    ${containers.length > 1 ? html`<label>Container <select @change=${pick}>${options.map(([value, text]) => html`<option value=${value} ?selected=${view.container === value}>${text}</option>`)}</select></label>` : nothing}
  </div>`;
}

function plotCard(pod, { usage, document, resource, events }) {
  return usageCard({
    resource,
    window: windowFor(pod),
    ...subject(pod, usage, document, resource),
    missing: course.missing,
    marks: marksOf(pod, events),
    now: html`<span class="now">${meter(resource, { used: used(usage, resource), ...amounts(pod.spec, resource) })}</span>`,
  });
}

/** Return statistics, course, request and limit of what is chosen: a container, or the whole pod. */
function subject(pod, usage, document, resource) {
  const own = view.container || (lasting(pod.spec).length === 1 ? lasting(pod.spec)[0].name : "");
  const measured = (found) => found?.containers?.find((each) => each.metadata.name === own);
  if (!own) return { statistics: windowOf(usage, windowFor(pod)), history: document?.history, ...amounts(pod.spec, resource) };
  const spec = lasting(pod.spec).find((each) => each.name === own);
  return {
    statistics: measured(usage)?.metrics[windowFor(pod)],
    history: measured(document)?.history,
    request: number(spec?.resources?.requests?.[resource]),
    limit: number(spec?.resources?.limits?.[resource]),
  };
}

// Events and restarts.

function eventsOf(pod) {
  const { namespace, name, uid } = pod.metadata;
  if (!may("list", "events", namespace)) return null;
  const watch = watched("v1", "events", namespace, { fieldSelector: `involvedObject.name=${name},involvedObject.kind=Pod` });
  const own = watch.all.filter((each) => !each.involvedObject?.uid || each.involvedObject.uid === uid);
  return own.map((each) => ({ ...each, time: each.series?.lastObservedTime ?? each.lastTimestamp ?? each.eventTime ?? each.metadata.creationTimestamp })).sort((a, b) => (a.time < b.time ? 1 : -1));
}

function startsOf(pod) {
  const found = [];
  for (const each of pod.status?.containerStatuses ?? []) {
    const ended = each.lastState?.terminated;
    if (ended) found.push({ time: ended.finishedAt, type: "Warning", reason: ended.reason, message: `${each.name} ${endText(ended)}`, count: 1 });
    if (each.restartCount && each.state?.running) found.push({ time: each.state.running.startedAt, type: "Normal", reason: "Restarted", message: `${each.name}, restart ${each.restartCount}`, count: 1 });
  }
  return found;
}

/** Return one mark for each second and tone, for any number of events. */
function marksOf(pod, events) {
  const marks = new Map();
  for (const each of [...(events ?? []), ...startsOf(pod)]) {
    if (!each.time) continue;
    const mark = { time: Math.round(Date.parse(each.time) / 1000), tone: each.type === "Warning" ? "bad" : "link" };
    marks.set(`${mark.time} ${mark.tone}`, mark);
  }
  return [...marks.values()];
}

function eventTable(pod, events) {
  if (events === null) return html`<p class="dim">You may not list events of this namespace.</p>`;
  const all = [...events, ...startsOf(pod)].filter((each) => each.time).sort((a, b) => (a.time < b.time ? 1 : -1));
  if (!all.length) return html`<p class="dim">None in the last hour.</p>`;
  const type = (each) => (each.type === "Warning" ? badge("Warning", "busy") : (each.type ?? ""));
  const message = (each) => html`${clipped(each.message ?? "")}${each.count > 1 ? html` <span class="dim">×${each.count}</span>` : nothing}`;
  return html`${plainTable("Events and restarts", ["Age", "Type", "Reason", "Message"], all.slice(0, MOST_EVENTS).map((each) => [age(each.time), type(each), clipped(each.reason ?? "", 100), message(each)]))}
    ${all.length > MOST_EVENTS ? html`<p class="dim">${all.length - MOST_EVENTS} older ones are not shown.</p>` : nothing}`;
}
