// Devices: those of device plugins, those of drivers (DRA), and who holds them.

import { html, nothing } from "../lit.js";
import { nodes, watched } from "../cluster.js";
import { meter } from "../meter.js";
import { allContainers, stateOf, toneOf } from "../pods.js";
import { number } from "../quantity.js";
import { badge, card, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";

const DRA = "resource.k8s.io/v1";

export function devicesPage() {
  const watch = nodes();
  const pods = may("list", "pods") ? watched("v1", "pods").all.filter((pod) => toneOf(stateOf(pod)) !== "done") : [];
  const plugins = watch.all.flatMap((node) => pluginRows(node, pods));
  return html`<h1>Devices</h1>${problem(watch)}
    ${card("Device plugins", plugins.length ? html`<ul class="plain">${plugins}</ul>` : html`<p class="dim">No node has devices of a device plugin.</p>`)}
    ${may("list", "resourceslices", "", { group: "resource.k8s.io" }) ? drivers() : nothing}`;
}

/** Return the lines of a node: one for each resource of a device plugin. */
function pluginRows(node, pods) {
  const capacity = node.status?.capacity ?? {};
  return Object.keys(capacity).filter(isDevice).sort().map((resource) => {
    const all = number(capacity[resource]);
    const healthy = number(node.status?.allocatable?.[resource]) ?? 0;
    const holders = holdersOf(node, resource, pods);
    const held = holders.reduce((total, each) => total + each.count, 0);
    return html`<li class="line">
      <span class="name">${resource}<span class="dim">on ${node.metadata.name}</span></span>
      ${badge(healthy === all ? "healthy" : `${all - healthy} unhealthy`, healthy === all ? "good" : "bad")}
      <span>${meter(resource, { used: held, capacity: all })}
        ${holders.map(({ pod, container, count, devices }) => html`<div class="figure"><a href="#/pod/${pod.metadata.namespace}/${pod.metadata.name}">${pod.metadata.name}</a> <span class="of">${container}: ${count}${devices.length ? ` (${devices.join(", ")})` : ""}</span></div>`)}
        ${holders.length ? nothing : html`<div class="figure of">held by no pod</div>`}</span>
    </li>`;
  });
}

function isDevice(resource) {
  return resource.includes("/") && !resource.startsWith("attachable-volumes");
}

function holdersOf(node, resource, pods) {
  return pods.filter((pod) => pod.spec.nodeName === node.metadata.name).flatMap((pod) => allContainers(pod.spec)
    .filter((each) => number(each.resources?.limits?.[resource]))
    .map((each) => ({ pod, container: each.name, count: number(each.resources.limits[resource]), devices: devicesOf(pod, each.name, resource) })));
}

/** Return the ids of devices with their health, if the node reports them. */
function devicesOf(pod, container, resource) {
  const status = (pod.status?.containerStatuses ?? []).find((each) => each.name === container);
  const found = (status?.allocatedResourcesStatus ?? []).find((each) => each.name === resource);
  return (found?.resources ?? []).map((each) => `${each.resourceID}${each.health && each.health !== "Healthy" ? ` ${each.health}` : ""}`);
}

function drivers() {
  const slices = watched(DRA, "resourceslices");
  const claims = may("list", "resourceclaims", "", { group: "resource.k8s.io" }) ? watched(DRA, "resourceclaims").all : [];
  const holder = new Map();
  for (const claim of claims) for (const each of claim.status?.allocation?.devices?.results ?? []) holder.set(`${each.driver}/${each.pool}/${each.device}`, claim);
  const rows = slices.all.flatMap((slice) => (slice.spec.devices ?? []).map((device) => {
    const claim = holder.get(`${slice.spec.driver}/${slice.spec.pool.name}/${device.name}`);
    return [device.name, slice.spec.driver, slice.spec.nodeName ?? slice.spec.pool.name, attributes(device), claim ? holderText(claim) : html`<span class="dim">free</span>`];
  }));
  return card("Devices of drivers", rows.length ? plainTable("Devices of drivers", ["Device", "Driver", "Node", "Attributes", "Held by"], rows) : html`<p class="dim">No driver publishes devices.</p>`);
}

function attributes(device) {
  const shown = Object.entries(device.attributes ?? {}).map(([name, value]) => `${name}=${Object.values(value)[0]}`);
  const amounts = Object.entries(device.capacity ?? {}).map(([name, { value }]) => `${name}: ${value}`);
  return [...shown, ...amounts].join(", ");
}

function holderText(claim) {
  const { namespace, name } = claim.metadata;
  const pods = (claim.status?.reservedFor ?? []).filter((each) => each.resource === "pods");
  return html`claim ${namespace}/${name}${pods.map((each) => html` <a href="#/pod/${namespace}/${each.name}">${each.name}</a>`)}`;
}
