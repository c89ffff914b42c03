// The tools of one server with their switches, and a form for what an operator changes about one.

import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { plural } from "./format.js";
import { badge, problemCard, skeleton } from "./parts.js";
import { address, go, route } from "./routes.js";

const CHOICES = [
  ["", "The model chooses"],
  ["fixed", "Always this value"],
  ["hidden", "Hidden and never sent"],
];

export class ToolEdits {
  /** `changed` is called after every change. */
  constructor(server, changed) {
    this.server = server;
    this.changed = changed;
    this.answer = null;
    this.problem = null;
    this.busy = "";
    this.editing = "";
    this.root = h("div", { class: "server-log stack", "data-tools": server }, skeleton(3, 34));
    this.load();
  }

  /** Open the form of a tool; an empty name closes it. */
  edit(tool) {
    if (tool === this.editing) return;
    this.editing = tool;
    if (this.answer) this.show(tool ? "form" : undefined);
  }

  /** Tell whether a person is in a form. */
  isTyping() {
    return Boolean(this.root.querySelector(".tool-form")?.contains(document.activeElement));
  }

  path(tool = "") {
    const rest = tool ? `/${encodeURIComponent(tool)}` : "";
    return `servers/${encodeURIComponent(this.server)}/tools${rest}`;
  }

  async load() {
    // What a person is typing stays.
    if (this.editing && this.answer) return;
    try {
      const answer = await ask(this.path());
      if (JSON.stringify(answer) === JSON.stringify(this.answer)) return;
      const isFirst = !this.answer;
      this.answer = answer;
      this.show(isFirst && this.editing ? "form" : undefined);
    } catch (error) {
      fill(
        this.root,
        problemCard(error, () => this.load()),
      );
    }
  }

  async save(tool, changes, key) {
    this.busy = tool;
    this.problem = null;
    try {
      this.answer = await ask(this.path(tool), {}, { method: "POST", body: changes });
      this.busy = "";
      this.changed();
      return true;
    } catch (error) {
      this.busy = "";
      this.problem = { tool, error };
      return false;
    } finally {
      if (key) this.show(key);
    }
  }

  show(key = document.activeElement?.dataset?.key) {
    const { answer } = this;
    const off = answer.tools.filter((row) => !row.on).length;
    fill(
      this.root,
      h("h3", {}, "Tools"),
      answer.problem
        ? h("p", { class: "note" }, "Nothing can be changed here. ", answer.problem)
        : h(
            "p",
            { class: "small soft" },
            `${plural(answer.tools.length, "tool")}${off ? `, ${off} switched off` : ""}. Changes are written to `,
            h("code", {}, answer.file),
            " and take effect at once.",
          ),
      answer.tools.length
        ? h(
            "ul",
            { class: "tool-edits" },
            answer.tools.map((row) => this.row(row)),
          )
        : h("p", { class: "small soft" }, "The server has not listed its tools yet. Start it first."),
    );
    if (key) this.root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  }

  row(row) {
    const isOpen = this.editing === row.tool;
    const key = `switch ${row.tool}`;
    const box = h("input", {
      type: "checkbox",
      role: "switch",
      "data-key": key,
      "aria-label": `${row.tool} is on`,
      disabled: Boolean(this.answer.problem) || this.busy === row.tool,
      onchange: () => this.save(row.tool, { enabled: box.checked }, key),
    });
    box.checked = row.on;
    const changed = [
      row.description && "description",
      row.hint && "search words",
      (row.arguments === null || Object.keys(row.arguments).length) && "fixed arguments",
      row.hidden.length && "hidden arguments",
    ].filter(Boolean);
    return h(
      "li",
      {},
      h(
        "div",
        { class: "row" },
        box,
        h("strong", { class: row.on ? null : "soft" }, row.tool),
        !row.on && badge("off", ""),
        changed.length ? badge(`changed: ${changed.join(", ")}`, "info") : null,
        this.answer.problem
          ? null
          : h(
              "button",
              {
                type: "button",
                class: "quiet small push",
                "aria-expanded": String(isOpen),
                "data-key": `edit ${row.tool}`,
                onclick: () =>
                  go(address("servers", { ...route().params, edit: isOpen ? "" : row.tool }), {
                    replace: true,
                  }),
              },
              "Change",
              h("span", { class: "sr" }, ` ${row.tool}`),
            ),
      ),
      row.problem && h("p", { class: "small bad" }, row.problem),
      this.problem?.tool === row.tool && !isOpen && problemCard(this.problem.error),
      isOpen && this.form(row),
    );
  }

  form(row) {
    const description = h(
      "textarea",
      { rows: "3", placeholder: row.own_description || "The server gives none.", "data-key": "form" },
      row.description,
    );
    const hint = h("input", { type: "text", value: row.hint, placeholder: "such as invoice, receipt" });
    const secret = row.arguments === null;
    const fields = secret ? [] : row.parameters.map((name) => new ArgumentField(name, row));
    const said = h("div", {});
    const save = h("button", { class: "primary small" }, "Save");
    const form = h(
      "form",
      {
        class: "stack tool-form",
        "aria-label": `Changes of ${row.tool}`,
        onsubmit: async (event) => {
          event.preventDefault();
          save.disabled = true;
          const chosen = (kind) => fields.filter((field) => field.kind === kind);
          const changes = {
            ...(description.value.trim() !== row.description && { description: description.value }),
            ...(hint.value.trim() !== row.hint && { hint: hint.value }),
            ...(!secret && {
              arguments: Object.fromEntries(chosen("fixed").map((one) => [one.name, one.value])),
              hidden: chosen("hidden").map((one) => one.name),
            }),
          };
          const isSaved = !Object.keys(changes).length || (await this.save(row.tool, changes));
          save.disabled = false;
          if (isSaved) this.close(row);
          else fill(said, problemCard(this.problem.error));
        },
      },
      h("label", { class: "field" }, "Description that models read, instead of the server's", description),
      h("label", { class: "field" }, "Words that searches find it by as well", hint),
      secret
        ? h("p", { class: "small soft" }, "Its fixed arguments hold a secret. Change them in the file.")
        : fields.length > 0 &&
            h(
              "fieldset",
              { class: "stack" },
              h("legend", {}, "Arguments"),
              fields.map((field) => field.root),
            ),
      said,
      h(
        "div",
        { class: "row" },
        save,
        h("button", { type: "button", class: "small", onclick: () => this.close(row) }, "Cancel"),
      ),
    );
    return form;
  }

  close(row) {
    this.problem = null;
    this.editing = "";
    go(address("servers", { ...route().params, edit: "" }), { replace: true });
    this.show(`edit ${row.tool}`);
    this.changed();
  }
}

/** What becomes of one argument: the model chooses it, or it is fixed, or hidden. */
class ArgumentField {
  constructor(name, row) {
    this.name = name;
    const isFixed = name in row.arguments;
    this.text = h("input", {
      type: "text",
      "aria-label": `Value of ${name}`,
      value: isFixed ? textOf(row.arguments[name]) : "",
    });
    this.choice = h(
      "select",
      { onchange: () => this.show() },
      CHOICES.map(([value, label]) => h("option", { value }, label)),
    );
    this.choice.value = isFixed ? "fixed" : row.hidden.includes(name) ? "hidden" : "";
    this.root = h(
      "div",
      { class: "argument" },
      h("label", { class: "argument-name" }, h("code", {}, name), this.choice),
      this.text,
    );
    this.show();
  }

  get kind() {
    return this.choice.value;
  }

  /** JSON where it can be read as JSON, such as 5 or true; otherwise the text itself. */
  get value() {
    try {
      return JSON.parse(this.text.value);
    } catch {
      return this.text.value;
    }
  }

  show() {
    this.text.hidden = this.kind !== "fixed";
  }
}

/** Return a value as a person types it; a text that looks like something else is quoted. */
function textOf(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  try {
    JSON.parse(value);
    return JSON.stringify(value);
  } catch {
    return value;
  }
}
