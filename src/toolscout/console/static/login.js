// The page on which a user of the gateway logs in to a server. It does not keep the token.

const OUTCOMES = {
  done: "You are logged in. Close this page and go back to your client.",
  failed: "You are not logged in. The log of the gateway says why; begin again from your client.",
  unknown: "This is not the end of a login that began in this browser. Begin again here.",
};

const byId = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const server = asked.get("server") ?? "";

function tell(text) {
  byId("told").textContent = text;
}

async function begin(event) {
  event.preventDefault();
  tell("One moment.");
  try {
    const response = await fetch(`/api/servers/${encodeURIComponent(server)}/own_login`, {
      method: "POST",
      headers: { Authorization: `Bearer ${byId("token").value.trim()}` },
    });
    const answer = await response.json();
    if (!response.ok) {
      tell([answer.error?.message, answer.error?.hint].filter(Boolean).join(" "));
      return;
    }
    byId("form").hidden = true;
    byId("token").value = "";
    if (!answer.url) {
      tell(`Server ${server} does not need a login.`);
      return;
    }
    tell(`Calls of ${answer.principal} will use the account with which you log in to ${server}.`);
    byId("link").href = answer.url;
    byId("link").textContent = `Log in at ${new URL(answer.url).host}`;
    byId("next").hidden = false;
  } catch {
    tell("The gateway does not answer. Try again.");
  }
}

const outcome = OUTCOMES[asked.get("outcome")];
if (outcome) tell(outcome);
else if (server) {
  tell(`Server ${server} asks for your login.`);
  byId("form").hidden = false;
  byId("form").addEventListener("submit", begin);
} else tell("The address of this page names no server. Begin again from your client.");
