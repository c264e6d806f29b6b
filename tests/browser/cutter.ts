// A way to a server that breaks once.

import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Socket } from "node:net"

/** Forwards to `port`. The first connection is reset when the server has sent `bytes`; later ones are whole. */
export async function cutOnce(port: number, bytes: number) {
  const sockets = new Set<Socket>()
  const wasCut = { value: false }
  let isFirst = true
  const proxy = createServer((client) => {
    const server = connect(port, "127.0.0.1")
    let left = isFirst ? bytes : Number.POSITIVE_INFINITY
    isFirst = false
    for (const socket of [client, server]) {
      sockets.add(socket)
      socket.on("error", () => {})
      socket.on("close", () => [client, server].forEach((end) => end.destroy()))
    }
    client.pipe(server)
    server.on("data", (piece) => {
      const part = piece.subarray(0, left)
      left -= part.length
      wasCut.value ||= left === 0
      client.write(part, () => left === 0 && client.resetAndDestroy())
    })
  })
  proxy.listen(0, "127.0.0.1")
  await once(proxy, "listening")
  const close = () => {
    sockets.forEach((socket) => socket.destroy())
    proxy.close()
  }
  return { port: (proxy.address() as AddressInfo).port, wasCut, close }
}
