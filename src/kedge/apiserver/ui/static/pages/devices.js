// Devices: those of device plugins, those of drivers (DRA), who holds them and who waits for them.

import { html, nothing } from "../lit.js";
import { nodes, watched } from "../cluster.js";
import { meter } from "../meter.js";
import { allContainers, stateOf, toneOf } from "../pods.js";
import { age, number } from "../quantity.js";
import { badge, card, clipped, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";
import { byName } from "./nodes.js";

const DRA = "resource.k8s.io/v1";
const GROUP = { group: "resource.k8s.io" };

export function devicesPage() {
  const watch = nodes();
  const pods = may("list", "pods") ? watched("v1", "pods").all.filter((pod) => toneOf(stateOf(pod)) !== "done") : undefined;
  const lines = byName(watch.all).flatMap((node) => pluginLines(node, pods));
  return html`<h1>Devices</h1>${problem(watch)}
    ${card("Device plugins", lines.length ? html`<ul class="plain">${lines}</ul>${waiting(pods ?? [], watch.all)}` : html`<p class="dim">No node has devices of a device plugin.</p>`)}
    ${may("list", "resourceslices", "", GROUP) ? drivers() : nothing}`;
}

// Device plugins.

/** Return the lines of a node: one for each resource of a device plugin. */
function pluginLines(node, pods) {
  const capacity = node.status?.capacity ?? {};
  return Object.keys(capacity).filter(isDevice).sort().map((resource) => {
    const all = number(capacity[resource]);
    const healthy = number(node.status?.allocatable?.[resource]) ?? 0;
    const holders = pods && holdersOf(node, resource, pods);
    const held = (holders ?? []).reduce((total, each) => total + each.count, 0);
    const words = [holders ? `${held} held, ${Math.max(0, healthy - held)} free` : "", all > healthy ? `${all - healthy} unhealthy` : ""];
    return html`<li class="line why">
      <span class="name">${resource}<span class="dim">on <a href="#/node/${node.metadata.name}">${node.metadata.name}</a></span></span>
      <span>${badge(healthy === all ? "healthy" : `${all - healthy} unhealthy`, healthy === all ? "good" : "bad")}</span>
      <span>${meter(resource, { used: holders && held, capacity: all })}<div class="figure">${words.filter(Boolean).join(", ")}</div>
        ${holders ? holderTable(resource, holders) : html`<div class="figure of">You may not list the pods that hold them.</div>`}</span>
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

/** Return the devices of a container, if the node reports them: `{id, health}`. */
function devicesOf(pod, container, resource) {
  const status = [...(pod.status?.containerStatuses ?? []), ...(pod.status?.initContainerStatuses ?? [])].find((each) => each.name === container);
  const found = (status?.allocatedResourcesStatus ?? []).find((each) => each.name === resource);
  return (found?.resources ?? []).map((each) => ({ id: each.resourceID, health: each.health ?? "" }));
}

function holderTable(resource, holders) {
  if (!holders.length) return html`<div class="figure of">held by no pod</div>`;
  const device = ({ id, health }) => html`<span class="device">${id}${health && health !== "Healthy" ? html` ${badge(health, "bad")}` : nothing}</span> `;
  return plainTable(`Holders of ${resource}`, ["Pod", "Container", "Devices"], holders.map(({ pod, container, count, devices }) => [podLink(pod.metadata), container, devices.length ? devices.map(device) : count]));
}

function podLink({ namespace, name }) {
  return html`<a href="#/pod/${namespace}/${name}">${name}</a> <span class="dim">in ${namespace}</span>`;
}

/** Draw the pods without a node that request devices of these nodes. */
function waiting(pods, all) {
  const known = new Set(all.flatMap((node) => Object.keys(node.status?.capacity ?? {}).filter(isDevice)));
  const wanted = (pod) => allContainers(pod.spec).flatMap((each) => Object.entries(each.resources?.limits ?? {}).filter(([name]) => known.has(name)).map(([name, amount]) => `${amount} ${name}`));
  const rows = pods.filter((pod) => !pod.spec.nodeName && wanted(pod).length).map((pod) => [podLink(pod.metadata), wanted(pod).join(", "), html`<a href="#/pod/${pod.metadata.namespace}/${pod.metadata.name}/why">why it waits</a>`]);
  return rows.length ? html`<h3>Pods that wait for devices</h3>${plainTable("Pods that wait for devices", ["Pod", "Requests", ""], rows)}` : nothing;
}

// Drivers.

function drivers() {
  const slices = watched(DRA, "resourceslices");
  const claims = may("list", "resourceclaims", "", GROUP) ? watched(DRA, "resourceclaims").all : undefined;
  const holders = claims && holdersByDevice(claims);
  const rows = slices.all.flatMap((slice) => (slice.spec.devices ?? []).map((device) => {
    const held = holders?.get(`${slice.spec.driver}/${slice.spec.pool.name}/${device.name}`);
    return [device.name, slice.spec.driver, slice.spec.nodeName ?? slice.spec.pool.name, taints(device), html`<span class="mono">${clipped(attributes(device), 300)}</span>`, held ? held.map(holderText) : holders ? html`<span class="dim">free</span>` : "–"];
  }));
  return html`${card("Devices of drivers", rows.length ? plainTable("Devices of drivers", ["Device", "Driver", "Node", "Taints", "Attributes", "Held by"], rows) : html`<p class="dim">No driver publishes devices.</p>`)}
    ${claims?.length ? card("Claims", claimTable(claims)) : nothing}`;
}

function holdersByDevice(claims) {
  const found = new Map();
  for (const claim of claims)
    for (const each of claim.status?.allocation?.devices?.results ?? []) {
      const key = `${each.driver}/${each.pool}/${each.device}`;
      found.set(key, [...(found.get(key) ?? []), claim]);
    }
  return found;
}

function taints(device) {
  const found = (device.taints ?? []).map((each) => `${each.key}:${each.effect}`);
  return found.length ? badge(found.join(", "), "bad") : "none";
}

function attributes(device) {
  const shown = Object.entries(device.attributes ?? {}).map(([name, value]) => `${name}=${Object.values(value)[0]}`);
  const amounts = Object.entries(device.capacity ?? {}).map(([name, { value }]) => `${name}: ${value}`);
  return [...shown, ...amounts].join(", ");
}

function holderText(claim) {
  const pods = podsOf(claim);
  return html`<div>${pods.length ? pods.map((name) => podLink({ namespace: claim.metadata.namespace, name })) : html`<span class="dim">no pod yet</span>`}</div>`;
}

function podsOf(claim) {
  return (claim.status?.reservedFor ?? []).filter((each) => each.resource === "pods").map((each) => each.name);
}

/** Draw the claims: what each got, and for whom. */
function claimTable(claims) {
  return plainTable("Claims", ["Claim", "State", "Devices", "Pods", "Age"], byName([...claims]).map((claim) => {
    const results = claim.status?.allocation?.devices?.results;
    const pods = podsOf(claim);
    const state = pods.length ? badge("in use", "good") : results ? badge("allocated", "done") : badge("pending", "busy");
    const owner = claim.metadata.ownerReferences?.find((each) => each.kind === "Pod");
    const names = pods.length ? pods : owner ? [owner.name] : [];
    return [html`${claim.metadata.name} <span class="dim">in ${claim.metadata.namespace}</span>`, state, (results ?? []).map((each) => `${each.device} of ${each.driver}`).join(", ") || "none yet", names.map((name) => html`<a href="#/pod/${claim.metadata.namespace}/${name}">${name}</a> `), age(claim.metadata.creationTimestamp)];
  }));
}
