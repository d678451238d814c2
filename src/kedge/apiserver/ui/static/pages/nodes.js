// Nodes, and one node with its pods stacked by usage.

import { html, svg, nothing } from "../lit.js";
import { meter } from "../meter.js";
import { nodes, nodeUsage, watched } from "../cluster.js";
import { stateOf, toneOf, used } from "../pods.js";
import { age, format, number } from "../quantity.js";
import { badge, card, facts, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";
import { podTable } from "./pod_list.js";

const STACKED = 12;

export function isReady(node) {
  return (node.status?.conditions ?? []).some((each) => each.type === "Ready" && each.status === "True");
}

/** Draw cpu and memory of a node against what it has for pods. */
export function nodeMeters(node, usage) {
  const capacity = (resource) => number(node.status?.allocatable?.[resource]);
  const now = (resource) => number(usage?.machine?.["10s"]?.mean?.[resource]);
  return html`<span class="pair">${["cpu", "memory"].map((each) => meter(each, { used: now(each), capacity: capacity(each) }))}</span>`;
}

export function nodesPage() {
  const watch = nodes();
  const usage = nodeUsage();
  const rows = watch.all.sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  return html`<h1>Nodes</h1>${problem(watch)}
    ${rows.map((node) => card(html`<a href="#/node/${node.metadata.name}">${node.metadata.name}</a>`, html`
      ${badge(isReady(node) ? "Ready" : "NotReady", isReady(node) ? "good" : "bad")} ${node.spec.unschedulable ? badge("cordoned", "busy") : nothing}
      ${nodeMeters(node, usage.get("", node.metadata.name))}
      ${stacks(node)}`))}`;
}

/** Draw the pods of a node side by side, each as wide as its share of what the node has. */
function stacks(node) {
  if (!may("list", "pods")) return nothing;
  const mine = watched("v1", "pods").all.filter((pod) => pod.spec.nodeName === node.metadata.name && toneOf(stateOf(pod)) !== "done");
  return html`${["cpu", "memory"].map((resource) => stack(node, mine, resource))}`;
}

function stack(node, mine, resource) {
  const usage = watched("metrics/v1alpha1", "pods");
  const capacity = number(node.status?.allocatable?.[resource]) || 1;
  const show = format(resource);
  const parts = mine
    .map((pod) => ({ pod, amount: used(usage.get(pod.metadata.namespace, pod.metadata.name), resource) ?? 0 }))
    .sort((a, b) => b.amount - a.amount);
  const shown = parts.slice(0, STACKED);
  const rest = parts.slice(STACKED).reduce((total, { amount }) => total + amount, 0);
  const whole = Math.max(capacity, parts.reduce((total, { amount }) => total + amount, 0));
  let at = 0;
  const place = (amount) => {
    const x = at;
    at += (amount / whole) * 100;
    return x;
  };
  const words = shown.slice(0, 3).map(({ pod, amount }) => `${pod.metadata.name} ${show(amount)}`).join(", ");
  return html`<figure class="stack"><figcaption>${resource} by pod, of ${show(capacity)}</figcaption>
    <svg class="bar tall" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="${resource} of ${mine.length} pods; most: ${words || "none"}">
      <rect class="track" width="100" height="10"></rect>
      ${shown.map(({ pod, amount }, index) => svg`<rect class="part part-${index % 6}" x=${place(amount)} width=${(amount / whole) * 100} height="10"><title>${pod.metadata.namespace}/${pod.metadata.name}: ${show(amount)}</title></rect>`)}
      ${rest ? svg`<rect class="part rest" x=${place(rest)} width=${(rest / whole) * 100} height="10"><title>${parts.length - STACKED} other pods: ${show(rest)}</title></rect>` : nothing}
    </svg>
    <ul class="legend">${shown.slice(0, 6).map(({ pod, amount }, index) => html`<li><span class="dot part-${index % 6}" aria-hidden="true"></span><a href="#/pod/${pod.metadata.namespace}/${pod.metadata.name}">${pod.metadata.name}</a> ${show(amount)}</li>`)}</ul>
  </figure>`;
}

export function nodePage(name) {
  const watch = nodes();
  const node = watch.get("", name);
  if (!node) return html`<h1>${name}</h1>${watch.state === "live" ? html`<p role="alert" class="notice bad">Node ${name} does not exist.</p>` : problem(watch)}`;
  const { status } = node;
  const info = status.nodeInfo ?? {};
  const mine = may("list", "pods") ? watched("v1", "pods").all.filter((pod) => pod.spec.nodeName === name) : [];
  return html`<h1>${name} ${badge(isReady(node) ? "Ready" : "NotReady", isReady(node) ? "good" : "bad")}</h1>
    ${card("Usage", html`${nodeMeters(node, nodeUsage().get("", name))} ${stacks(node)}`)}
    ${card("Facts", facts([
      ["Age", age(node.metadata.creationTimestamp)],
      ["Addresses", (status.addresses ?? []).map((each) => each.address).join(", ")],
      ["Kernel", info.kernelVersion],
      ["System", info.osImage],
      ["Kubelet", info.kubeletVersion],
      ["Runtime", info.containerRuntimeVersion],
      ["Taints", (node.spec.taints ?? []).map((each) => `${each.key}${each.value ? `=${each.value}` : ""}:${each.effect}`).join(", ")],
    ]))}
    ${card("Conditions", plainTable("Conditions", ["Type", "Status", "Reason", "Message", "Since"], (status.conditions ?? []).map((each) => [each.type, each.status, each.reason ?? "", each.message ?? "", age(each.lastTransitionTime)])))}
    ${mine.length ? html`<h2>Pods</h2>${podTable(mine, { filter: "", label: `Pods of ${name}` })}` : nothing}`;
}

