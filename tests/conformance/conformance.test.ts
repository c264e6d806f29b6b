// The whole suite in one file: `cargo xtask conformance` starts the server, says where it is and
// counts what ran.

import { runConformanceTests } from "@durable-streams/server-conformance-tests"

function required(name: string): string {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set; run this through \`cargo xtask conformance\``)
  return value
}

runConformanceTests({
  baseUrl: required("THALWEG_TEST_URL"),
  longPollTimeoutMs: Number(required("THALWEG_TEST_LONG_POLL_TIMEOUT_MS")),
  subscriptions: false,
})
