// Runs before the first paint, so that a chosen theme does not flash in.
try {
  const chosen = localStorage.getItem("toolscout.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the system's own choice holds.
}
