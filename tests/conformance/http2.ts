// All requests of the suite over HTTP/2, if THALWEG_TEST_HTTP2 says how. Node's own `fetch` needs a dispatcher for that, and
// the connections are asked what they spoke.

import diagnostics from "node:diagnostics_channel"
import { Agent, fetch as fetchBy } from "undici"
import { afterAll, expect } from "vitest"

const how = process.env.THALWEG_TEST_HTTP2
if (how !== undefined) {
  // Over TLS the handshake agrees on it; in plain the client begins with it.
  const dispatcher = new Agent({ allowH2: true, connect: { useH2c: how === "prior-knowledge" } as object })
  globalThis.fetch = ((url: never, init?: object) => fetchBy(url, { ...init, dispatcher } as never)) as never

  const spoken = new Set<unknown>()
  diagnostics.subscribe("undici:client:connected", (message) => {
    spoken.add((message as { connectParams: { version: unknown } }).connectParams.version)
  })
  afterAll(() => expect([...spoken]).toEqual(["h2"]))
}
