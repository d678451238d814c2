// Nodes, and one node: its usage over a day, its pods stacked by usage, what is requested of it.

import { html, svg, nothing } from "../lit.js";
import { Course } from "../course.js";
import { meter } from "../meter.js";
import { nodes, nodeUsage, watched } from "../cluster.js";
import { amounts, stateOf, toneOf, used } from "../pods.js";
import { age, format, number } from "../quantity.js";
import { path } from "../session.js";
import { badge, card, facts, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";
import { firstWindow, usageCard, windowChoice } from "../usage_plot.js";
import { podTable } from "./pod_list.js";

const STACKED = 12;
const view = { window: "" };
const course = new Course(10000);

export function isReady(node) {
  return (node.status?.conditions ?? []).some((each) => each.type === "Ready" && each.status === "True");
}

/** Return badges for what the user should know of a node. */
export function nodeBadges(node) {
  const pressures = (node.status?.conditions ?? []).filter((each) => each.type !== "Ready" && each.status === "True");
  return html`${badge(isReady(node) ? "Ready" : "NotReady", isReady(node) ? "good" : "bad")} ${node.spec.unschedulable ? badge("cordoned", "busy") : nothing} ${pressures.map((each) => badge(each.type, "bad"))}`;
}

export function byName(list) {
  return list.sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
}

/** Return the pods that use a node; undefined if the user may not list them. */
function podsOn(node) {
  return may("list", "pods") ? watched("v1", "pods").all.filter((pod) => pod.spec.nodeName === node.metadata.name) : undefined;
}

function isActive(pod) {
  return toneOf(stateOf(pod)) !== "done";
}

/** Return what the pods of a node request; undefined if the user may not list them. */
function requested(node, resource) {
  return podsOn(node)?.filter(isActive).reduce((total, pod) => total + (amounts(pod.spec, resource).request ?? 0), 0);
}

function allocatable(node, resource) {
  return number(node.status?.allocatable?.[resource]);
}

/** Draw cpu and memory of a node against what it has for pods, with a mark at what is requested. */
export function nodeMeters(node, usage) {
  const now = (resource) => number(usage?.machine?.["10s"]?.mean?.[resource]);
  return html`<span class="pair">${["cpu", "memory"].map((each) => meter(each, { used: now(each), request: requested(node, each), capacity: allocatable(node, each) }))}</span>`;
}

export function nodesPage() {
  const watch = nodes();
  const usage = nodeUsage();
  return html`<h1>Nodes</h1>${problem(watch)}
    ${byName(watch.all).map((node) => card(html`<a href="#/node/${node.metadata.name}">${node.metadata.name}</a> ${nodeBadges(node)}`, html`
      ${stacks(node, usage.get("", node.metadata.name))}`))}
    <p class="dim">A bar is what the node has for pods; the dark mark is what its pods request.</p>`;
}

/** Draw the pods of a node side by side, each as wide as its share of what the node has. */
function stacks(node, usage) {
  const mine = podsOn(node)?.filter(isActive);
  if (!mine) return nodeMeters(node, usage);
  return html`${["cpu", "memory"].map((resource) => stack(node, usage, mine, resource))}`;
}

function stack(node, machine, mine, resource) {
  const usage = watched("metrics/v1alpha1", "pods");
  const capacity = allocatable(node, resource) || 1;
  const show = format(resource);
  const parts = mine
    .map((pod) => ({ pod, amount: used(usage.get(pod.metadata.namespace, pod.metadata.name), resource) ?? 0 }))
    .sort((a, b) => b.amount - a.amount);
  const sum = parts.reduce((total, { amount }) => total + amount, 0);
  const all = number(machine?.machine?.["10s"]?.mean?.[resource]);
  const outside = Math.max(0, (all ?? 0) - sum);
  const shown = parts.slice(0, STACKED);
  const rest = parts.slice(STACKED).reduce((total, { amount }) => total + amount, 0);
  const asked = requested(node, resource) ?? 0;
  const whole = Math.max(capacity, sum + outside, asked);
  let at = 0;
  const place = (amount) => {
    const x = at;
    at += (amount / whole) * 100;
    return x;
  };
  const words = shown.slice(0, 3).map(({ pod, amount }) => `${pod.metadata.name} ${show(amount)}`).join(", ");
  const part = (style, amount, title) => svg`<rect class="part ${style}" x=${place(amount)} width=${(amount / whole) * 100} height="10"><title>${title}: ${show(amount)}</title></rect>`;
  return html`<figure class="stack"><figcaption>${resource === "cpu" ? "CPU" : "Memory"} by pod: <strong>${show(all)}</strong> used, ${show(asked)} requested, of ${show(capacity)}</figcaption>
    <svg class="bar tall" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="${resource} of ${mine.length} pods; most: ${words || "none"}">
      <rect class="track" width="100" height="10"></rect>
      ${shown.map(({ pod, amount }, index) => part(`part-${index % 6}`, amount, `${pod.metadata.namespace}/${pod.metadata.name}`))}
      ${rest ? part("rest", rest, `${parts.length - STACKED} other pods`) : nothing}
      ${outside ? part("outside", outside, "outside pods") : nothing}
      ${asked ? svg`<rect class="request" x=${Math.min(99.7, (asked / whole) * 100)} width=".3" height="10"></rect>` : nothing}
    </svg>
    <ul class="legend">${shown.slice(0, 6).map(({ pod, amount }, index) => html`<li><span class="dot part-${index % 6}" aria-hidden="true"></span><a href="#/pod/${pod.metadata.namespace}/${pod.metadata.name}">${pod.metadata.name}</a> ${show(amount)}</li>`)}
      ${parts.length > 6 ? html`<li>${parts.length - 6} more pods ${show(parts.slice(6).reduce((total, { amount }) => total + amount, 0))}</li>` : nothing}
      ${parts.length ? nothing : html`<li class="dim">no pods</li>`}
      ${outside ? html`<li><span class="dot outside" aria-hidden="true"></span>outside pods ${show(outside)}</li>` : nothing}</ul>
  </figure>`;
}

// One node.

export function nodePage(name) {
  const watch = nodes();
  const node = watch.get("", name);
  if (!node) return html`<h1>${name}</h1>${watch.state === "live" ? html`<p role="alert" class="notice bad">Node ${name} does not exist.</p>` : problem(watch)}`;
  const usage = nodeUsage().get("", name);
  const mine = podsOn(node) ?? [];
  return html`<h1>${name} ${nodeBadges(node)}</h1>
    ${nodeFacts(node, mine)}
    <div class="controls">${windowChoice(windowFor(node), (window) => (view.window = window))}</div>
    <div class="plots">${["cpu", "memory"].map((resource) => plotCard(node, usage, resource))}</div>
    ${podsOn(node) ? card("Pods by usage", stacks(node, usage)) : nothing}
    ${card("Conditions", plainTable("Conditions", ["Type", "Status", "Reason", "Message", "Since"], (node.status.conditions ?? []).map((each) => [each.type, conditionBadge(each), each.reason ?? "", each.message ?? "", age(each.lastTransitionTime)])))}
    ${card("Resources", resourceTable(node, mine))}
    ${mine.length ? html`<h2>Pods</h2>${podTable(mine, { filter: "", label: `Pods of ${name}`, usage: watched("metrics/v1alpha1", "pods"), named: true })}` : nothing}`;
}

function windowFor(node) {
  return view.window || firstWindow(node.metadata.creationTimestamp);
}

/** Draw the usage of the whole machine, with what it has for pods as a line. */
function plotCard(node, usage, resource) {
  const document = course.of(node.metadata.uid, path("metrics/v1alpha1", "nodes", "", node.metadata.name));
  const window = windowFor(node);
  const statistics = usage?.machine?.[window];
  return usageCard({ resource, window, statistics, history: document?.history, missing: course.missing, request: requested(node, resource), capacity: allocatable(node, resource), marks: readyMarks(node) });
}

/** Return a mark for each change of a condition that still holds. */
function readyMarks(node) {
  return (node.status.conditions ?? []).filter((each) => each.lastTransitionTime).map((each) => ({ time: Date.parse(each.lastTransitionTime) / 1000, tone: isGood(each) ? "link" : "bad" }));
}

function isGood(condition) {
  return condition.status === (condition.type === "Ready" ? "True" : "False");
}

function conditionBadge(condition) {
  return badge(condition.status, isGood(condition) ? "good" : "bad");
}

function nodeFacts(node, mine) {
  const info = node.status.nodeInfo ?? {};
  return facts([
    ["Age", age(node.metadata.creationTimestamp)],
    ["Pods", node.status.allocatable?.pods ? `${mine.filter(isActive).length} of ${node.status.allocatable.pods}` : undefined],
    ["Addresses", (node.status.addresses ?? []).map((each) => each.address).join(", ")],
    ["Kernel", info.kernelVersion],
    ["System", info.osImage],
    ["Kubelet", info.kubeletVersion],
    ["Runtime", info.containerRuntimeVersion],
    ["Taints", (node.spec.taints ?? []).map((each) => `${each.key}${each.value ? `=${each.value}` : ""}:${each.effect}`).join(", ")],
  ]);
}

/** Draw what the node has of each resource, and what its pods request and are limited to. */
function resourceTable(node, mine) {
  const active = mine.filter(isActive);
  const names = Object.keys(node.status.allocatable ?? {}).filter((each) => each !== "pods" && number(node.status.capacity?.[each])).sort();
  const sum = (resource, sort) => active.reduce((total, pod) => total + (amounts(pod.spec, resource)[sort] ?? 0), 0);
  return plainTable("Resources", ["Resource", "Capacity", "For pods", "Requested", "Limits"], names.map((name) => {
    const show = format(name);
    return [name, show(number(node.status.capacity?.[name])), show(allocatable(node, name)), show(sum(name, "request")), show(sum(name, "limit"))];
  }));
}
