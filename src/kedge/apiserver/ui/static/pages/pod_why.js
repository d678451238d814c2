// Why the scheduler chose the node of a pod: its filters and scores, drawn.

import { html, svg, nothing } from "../lit.js";
import { get, path } from "../session.js";
import { changed } from "../redraw.js";
import { age, bytes, cpu, number } from "../quantity.js";
import { badge, card, facts, plainTable } from "../parts.js";
import { may } from "../rights.js";

const KEPT_MS = 15000;
const MOST_DOTS = 24;
const MOST_NAMES = 5;
const TONES = { chosen: "good", passed: "done", refused: "bad" };
let known = { key: "", asked: 0, decision: null, problem: "" };

export function whyTab(pod) {
  const { namespace, name, uid } = pod.metadata;
  const key = `${uid} ${pod.spec.nodeName ?? ""}`;
  if (known.key !== key) known = { key, asked: 0, decision: null, problem: "" };
  if (Date.now() - known.asked > KEPT_MS) {
    known.asked = Date.now();
    const mine = known;
    get(path("scheduling.kedge/v1alpha1", "schedulingdecisions", namespace, name)).then(
      (decision) => Object.assign(mine, { decision, problem: "" }),
      (error) => Object.assign(mine, { problem: error.message }),
    ).then(changed);
  }
  if (known.problem) return html`<p role="alert" class="notice bad">${known.problem}</p>`;
  return known.decision ? shown(known.decision) : html`<p role="status" class="dim">Loading …</p>`;
}

function shown(decision) {
  const { expected } = decision;
  return html`${facts([
      ["Scheduler", decision.scheduler],
      [decision.decidedAt ? "Decided" : "Would decide now", decision.decidedAt ? `${age(decision.decidedAt)} ago` : decision.node || "no node"],
      ["Node", decision.boundTo || decision.node || "none"],
      ["Expected usage", expected ? `${amountsText(expected.amounts)} (from ${expected.source})` : undefined],
      ["Nodes that were not tried", decision.notAsked || undefined],
    ])}
    ${decision.message ? html`<p class="notice bad">${decision.message}</p>` : nothing}
    ${decision.note ? html`<p class="notice">${decision.note}</p>` : nothing}
    ${card("Nodes", html`<ul class="plain">${(decision.nodes ?? []).map((node) => nodeLine(node, decision))}</ul>
      ${legend(decision)}
      ${decision.same?.length ? html`<p class="dim">Made no difference: ${decision.same.join(", ")}.</p>` : nothing}`)}
    ${card("Filters, in their order", filterTable(decision))}`;
}

/** Draw which node passed which filter. The first filter that refuses a node is the last one asked. */
function filterTable(decision) {
  const [filters, all] = [decision.filters ?? [], decision.nodes ?? []];
  return plainTable("Filters", ["Filter", "Passed", "Refused"], filters.map((filter, at) => {
    const refused = all.filter((node) => node.verdict === "refused" && node.filter === filter);
    const passed = all.filter((node) => node.verdict !== "refused" || filters.indexOf(node.filter) > at);
    return [filter, passed.length ? html`${passed.length} <span class="passed" aria-hidden="true">${"●".repeat(Math.min(passed.length, MOST_DOTS))}</span>` : html`<span class="dim">none left</span>`, refused.length ? html`${badge(refused.length, "bad")} ${refused.slice(0, MOST_NAMES).map((node) => node.name).join(", ")}${refused.length > MOST_NAMES ? " …" : ""}` : "–"];
  }));
}

function scoreNames(decision) {
  return [...new Set((decision.nodes ?? []).flatMap((node) => (node.scores ?? []).map((each) => each.name)))];
}

function legend(decision) {
  const names = scoreNames(decision);
  return names.length ? html`<ul class="legend">${names.map((name, at) => html`<li><span class="dot part-${at % 6}" aria-hidden="true"></span>${name}</li>`)}</ul>` : nothing;
}

function nodeLine(node, decision) {
  const names = scoreNames(decision);
  const most = Math.max(1, ...decision.nodes.map((each) => each.total ?? 0));
  let at = 0;
  const parts = (node.scores ?? []).map((score) => {
    const width = ((score.value * score.weight) / most) * 100;
    const x = at;
    at += width;
    return svg`<rect class="part part-${names.indexOf(score.name) % 6}" x=${x} width=${width} height="10"><title>${score.name}: ${score.value} × ${score.weight}</title></rect>`;
  });
  const words = (node.scores ?? []).map((each) => `${each.name} ${each.value} × ${each.weight}`).join(", ");
  return html`<li class="line">
    <span class="name">${may("get", "nodes") ? html`<a href="#/node/${node.name}">${node.name}</a>` : node.name}</span> <span>${badge(node.verdict, TONES[node.verdict] ?? "done")}</span>
    ${node.verdict === "refused"
      ? html`<span>${node.filter}: ${(node.reasons ?? []).join("; ")}</span>`
      : html`<span>${node.total === undefined ? html`<span class="dim">the only node that will do</span>` : html`<svg class="bar tall" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="total ${node.total}: ${words}"><rect class="track" width="100" height="10"></rect>${parts}</svg><span class="figure">total ${node.total}${words ? html` <span class="of">(${words})</span>` : nothing}</span>`}
        ${node.usage ? html`<div class="figure of">used ${amountsText(node.usage.used)} of ${amountsText(node.usage.allocatable)} (${node.usage.window})</div>` : nothing}</span>`}
  </li>`;
}

/** Amounts of 0 are missing in the document. */
function amountsText(amounts) {
  return `${cpu(number(amounts?.cpu) ?? 0)} cpu and ${bytes(number(amounts?.memory) ?? 0)} memory`;
}
