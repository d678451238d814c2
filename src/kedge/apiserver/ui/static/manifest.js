// What the page has to know of a manifest to send it: kind, name and namespace. The server reads the rest.

import { path } from "./session.js";

/** Return the documents of a text of YAML: `{text, apiVersion, kind, name, namespace}`. */
export function split(text) {
  return text.split(/^---(?:[ \t].*)?$/m).filter((each) => /^\s*[^\s#]/m.test(each)).map((each) => ({
    text: each,
    apiVersion: topLevel(each, "apiVersion"),
    kind: topLevel(each, "kind"),
    name: ofMetadata(each, "name") || ofMetadata(each, "generateName"),
    namespace: ofMetadata(each, "namespace"),
  }));
}

function topLevel(text, field) {
  return scalar(new RegExp(`^["']?${field}["']?:(.*)$`, "m").exec(text)?.[1]);
}

/** Return a field of the metadata, in a block or in braces. */
function ofMetadata(text, field) {
  const line = new RegExp(`^metadata:\\s*\\{(?:.*[,{ ])?${field}:([^,}]*)`, "m").exec(text);
  if (line) return scalar(line[1]);
  const block = /^metadata:\s*(?:#.*)?\n((?:[ \t]+.*\n?|\s*\n)*)/m.exec(text)?.[1] ?? "";
  const indent = /^([ \t]+)\S/m.exec(block)?.[1] ?? "";
  return scalar(new RegExp(`^${indent}${field}:(.*)$`, "m").exec(block)?.[1]);
}

function scalar(text = "") {
  return text.replace(/\s#.*$/, "").trim().replace(/^(["'])(.*)\1$/, "$2");
}

/** Return where an object is created: `{target, namespace}`. `get` reads what the server serves. */
export async function objectPath({ apiVersion, kind, namespace }, fallback, get) {
  if (!apiVersion || !kind) throw new Error("apiVersion or kind is missing: write both at the beginning of a line");
  const root = apiVersion.split("/").map(encodeURIComponent).join("/");
  const served = await get(apiVersion.includes("/") ? `apis/${root}` : `api/${root}`);
  const found = (served.resources ?? []).find((each) => each.kind === kind && !each.name.includes("/"));
  if (!found) throw new Error(`the server has no ${kind} in ${apiVersion}`);
  const place = found.namespaced ? namespace || fallback : "";
  return { target: path(apiVersion, found.name, place), namespace: place };
}
