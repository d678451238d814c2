// LimitRanges and quotas: the bounds, what is used, and what the next pod would get.

import { html, nothing } from "../lit.js";
import { choose, scope, watched } from "../cluster.js";
import { meter } from "../meter.js";
import { format, number } from "../quantity.js";
import { path, post } from "../session.js";
import { changed } from "../redraw.js";
import { card, plainTable, problem } from "../parts.js";
import { may } from "../rights.js";

const BOUNDS = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];
const ASKED_MS = 15000;
let next = { namespace: "", version: "", asked: 0, pod: null, refusal: "" };

export function limitsPage() {
  const ranges = watched("v1", "limitranges", scope.namespace);
  const quotas = watched("v1", "resourcequotas", scope.namespace);
  return html`<h1>Limits and quotas</h1>
    ${problem(ranges)}
    ${scope.namespace ? nextPod(scope.namespace, ranges, quotas) : html`<p class="notice">Choose a namespace to see what the next pod would get there.</p>`}
    ${quotas.all.map(quotaCard)} ${ranges.all.map(rangeCard)}
    ${ranges.state === "live" && !ranges.items.size && !quotas.items.size ? html`<p class="dim">No LimitRange and no ResourceQuota${scope.namespace ? ` in ${scope.namespace}` : ""}: pods may use what their nodes have.</p>` : nothing}`;
}

function title(kind, object) {
  const { name, namespace } = object.metadata;
  return html`${kind} ${name} ${scope.namespace ? nothing : html`<button class="small" @click=${() => choose(namespace)}>${namespace}</button>`}`;
}

function quotaCard(quota) {
  const hard = quota.status?.hard ?? quota.spec.hard ?? {};
  return card(title("ResourceQuota", quota), html`<ul class="plain">${Object.keys(hard).sort().map((resource) => html`<li class="line two"><span class="name">${resource}</span>${meter(plain(resource), { used: number(quota.status?.used?.[resource]) ?? 0, limit: number(hard[resource]) })}</li>`)}</ul>`);
}

function plain(resource) {
  return resource.replace(/^(requests|limits)\./, "");
}

function rangeCard(range) {
  const rows = (range.spec.limits ?? []).flatMap((item) => {
    const resources = new Set(BOUNDS.flatMap((bound) => Object.keys(item[bound] ?? {})));
    return [...resources].sort().map((resource) => [item.type, resource, ...BOUNDS.map((bound) => item[bound]?.[resource] ?? "–"), item.selector ? JSON.stringify(item.selector) : "all"]);
  });
  return card(title("LimitRange", range), plainTable(`LimitRange ${range.metadata.name}`, ["Of", "Resource", "Min", "Max", "Default limit", "Default request", "Limit / request", "For"], rows));
}

/** Ask the server for a pod without requests and limits, with everything but the write. */
function nextPod(namespace, ranges, quotas) {
  if (!may("create", "pods", namespace)) return nothing;
  const version = `${ranges.version} ${quotas.version}`;
  const isStale = next.version !== version || Date.now() - next.asked > ASKED_MS;
  if (next.namespace !== namespace) next = { namespace, version, asked: 0, pod: null, refusal: "" };
  if (isStale && Date.now() - next.asked > 1000) {
    Object.assign(next, { version, asked: Date.now() });
    const mine = next;
    const pod = { metadata: { generateName: "next-" }, spec: { containers: [{ name: "main", image: "example" }] } };
    post(path("v1", "pods", namespace), pod, { dryRun: "All" }).then(
      (found) => Object.assign(mine, { pod: found, refusal: "" }),
      (error) => Object.assign(mine, { pod: null, refusal: error.message }),
    ).then(changed);
  }
  return card(`What the next pod in ${namespace} would get`, next.refusal ? html`<p class="notice bad">It would be refused: ${next.refusal}</p>` : next.pod ? html`${given(next.pod)} ${room(next.pod, quotas.all)}` : html`<p class="dim" role="status">Asking the server …</p>`);
}

function given(pod) {
  const { requests = {}, limits = {} } = pod.spec.containers[0].resources ?? {};
  const names = [...new Set([...Object.keys(requests), ...Object.keys(limits)])].sort();
  if (!names.length) return html`<p>A container that asks for nothing gets no request and no limit.</p>`;
  const cell = (amounts, name) => (name in amounts ? format(name)(number(amounts[name])) : "none");
  return html`<p>A container that asks for nothing gets:</p>${plainTable("What it gets", ["Resource", "Request", "Limit"], names.map((name) => [name, cell(requests, name), cell(limits, name)]))}`;
}

/** Say how many such pods the quotas have room for. Quotas with scopes may not count them. */
function room(pod, quotas) {
  const { requests = {}, limits = {} } = pod.spec.containers[0].resources ?? {};
  const costs = { pods: 1, "count/pods": 1 };
  for (const [name, amount] of Object.entries(requests)) costs[name] = costs[`requests.${name}`] = number(amount);
  for (const [name, amount] of Object.entries(limits)) costs[`limits.${name}`] = number(amount);
  const counts = quotas.filter((each) => !each.spec.scopes?.length && !each.spec.scopeSelector).flatMap((quota) => Object.entries(quota.status?.hard ?? {}).filter(([name]) => costs[name]).map(([name, hard]) => ({ name, quota: quota.metadata.name, count: roomFor(number(hard) - (number(quota.status.used?.[name]) ?? 0), costs[name]) })));
  if (!counts.length) return nothing;
  const least = counts.reduce((best, each) => (each.count < best.count ? each : best));
  return html`<p>The quotas have room for <strong>${least.count}</strong> such pod${least.count === 1 ? "" : "s"}; ${least.name} of ${least.quota} is used up first.</p>`;
}

/** Sums of decimal fractions are not exact. */
function roomFor(rest, cost) {
  return Math.max(0, Math.floor(Math.round((rest / cost) * 1e6) / 1e6));
}
