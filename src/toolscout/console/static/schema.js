// A JSON schema as a list that people can read; the JSON itself is one click away.

import { h } from "./dom.js";

const DEEPEST = 6;
const VALUES_SHOWN = 12;

/** Return the viewer of a schema. */
export function schemaView(schema, label) {
  const fields = fieldsOf(schema, schema, 0);
  return h(
    "div",
    { class: "stack" },
    fields ?? h("p", { class: "soft small" }, "No parameters."),
    h(
      "details",
      {},
      h("summary", {}, `${label} as JSON`),
      h(
        "pre",
        { class: "read", tabindex: "0", "aria-label": `${label} as JSON` },
        JSON.stringify(schema, null, 2),
      ),
    ),
  );
}

function fieldsOf(schema, root, depth) {
  const known = resolved(schema, root);
  const properties = Object.entries(known.properties ?? {});
  if (!properties.length || depth > DEEPEST) return null;
  const required = new Set(known.required ?? []);
  const ordered = [...properties].sort(([a], [b]) => required.has(b) - required.has(a));
  return h(
    "ul",
    { class: "schema" },
    ordered.map(([name, field]) =>
      fieldRow(name, resolved(field, root), required.has(name), root, depth),
    ),
  );
}

function fieldRow(name, field, isRequired, root, depth) {
  const inner = fieldsOf(
    field.type === "array" && field.items ? field.items : field,
    root,
    depth + 1,
  );
  return h(
    "li",
    {},
    h(
      "div",
      { class: "line" },
      h("code", {}, name),
      h("span", { class: "type" }, typeOf(field, root)),
      isRequired && h("span", { class: "badge info" }, "required"),
      field.default !== undefined &&
        h("span", { class: "type" }, `= ${JSON.stringify(field.default)}`),
    ),
    field.description && h("p", {}, field.description),
    field.enum &&
      h(
        "p",
        {},
        "One of ",
        field.enum
          .slice(0, VALUES_SHOWN)
          .map((value, i) => [i ? ", " : "", h("code", {}, JSON.stringify(value))]),
        field.enum.length > VALUES_SHOWN ? `, and ${field.enum.length - VALUES_SHOWN} more` : "",
      ),
    limits(field) && h("p", {}, limits(field)),
    inner,
  );
}

function limits(field) {
  const pairs = [
    ["minimum", "at least"],
    ["maximum", "at most"],
    ["minLength", "at least characters:"],
    ["maxLength", "at most characters:"],
    ["minItems", "at least items:"],
    ["maxItems", "at most items:"],
    ["pattern", "pattern"],
    ["format", "format"],
  ];
  return pairs
    .filter(([key]) => field[key] !== undefined)
    .map(([key, label]) => `${label} ${field[key]}`)
    .join(", ");
}

function typeOf(field, root) {
  if (field.const !== undefined) return JSON.stringify(field.const);
  const options = field.anyOf ?? field.oneOf;
  if (options)
    return [...new Set(options.map((one) => typeOf(resolved(one, root), root)))].join(" | ");
  if (field.type === "array")
    return `${field.items ? typeOf(resolved(field.items, root), root) : "any"}[]`;
  if (Array.isArray(field.type)) return field.type.join(" | ");
  return field.type ?? (field.enum ? "value" : "any");
}

/** Resolve a local reference; an unknown one stays as it is. */
function resolved(schema, root) {
  if (!schema || typeof schema !== "object") return {};
  if (typeof schema.$ref !== "string" || !schema.$ref.startsWith("#/")) return schema;
  const found = schema.$ref
    .slice(2)
    .split("/")
    .reduce((at, key) => at?.[key.replaceAll("~1", "/").replaceAll("~0", "~")], root);
  return found ? { ...found, ...schema } : schema;
}
