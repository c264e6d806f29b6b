// The web page of the tests, and what runs in it. Functions here are sent to the browser as text: they use nothing else of this file.

import { once } from "node:events"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"

/** Serves an empty page under every name of this machine. */
export async function servePage(): Promise<{ port: number; server: Server }> {
  const server = createServer((_, answer) => {
    answer.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>page</title>")
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  return { port: (server.address() as AddressInfo).port, server }
}

/** What each reader of the page has got, by the stream's URL. */
export type Received = Record<string, number[]>

declare global {
  interface Window {
    received: Received
  }
}

/** Reads streams from their beginnings for as long as the page is open: some by `EventSource`, some by long-polls. */
export function follow({ events, polls }: { events: string[]; polls: string[] }): void {
  window.received = {}
  const take = (url: string, messages: { n: number }[]) => {
    for (const message of messages) window.received[url].push(message.n)
  }
  for (const url of events) {
    window.received[url] = []
    const source = new EventSource(`${url}${url.includes("?") ? "&" : "?"}live=sse&offset=-1`)
    source.addEventListener("data", (event) => take(url, JSON.parse((event as MessageEvent).data)))
  }
  const poll = async (url: string) => {
    let offset = "-1"
    for (;;) {
      try {
        const answer = await fetch(`${url}?live=long-poll&offset=${offset}`)
        if (!answer.ok) throw new Error(`status ${answer.status}`)
        const messages = answer.status === 204 ? [] : await answer.json()
        offset = answer.headers.get("Stream-Next-Offset") ?? "lost"
        take(url, messages)
      } catch {
        await new Promise((later) => setTimeout(later, 100))
      }
    }
  }
  for (const url of polls) {
    window.received[url] = []
    void poll(url)
  }
}

/** What a page gets that tries to delete a stream, and to append to one in the ways that need no permission. */
export async function attack(url: string): Promise<string[]> {
  const tries: [string, RequestInit][] = [
    ["delete", { method: "DELETE" }],
    ["append", { method: "POST", body: '{"n":666}', headers: { "Content-Type": "application/json" } }],
    ["simple append", { method: "POST", body: "666", headers: { "Content-Type": "text/plain" } }],
    ["blind append", { method: "POST", body: "666", mode: "no-cors" }],
  ]
  const results: string[] = []
  for (const [name, init] of tries) {
    const result = await fetch(url, init).then((answer) => `${answer.type} ${answer.status}`, () => "failed")
    results.push(`${name}: ${result}`)
  }
  return results
}
