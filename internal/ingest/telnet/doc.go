// Package telnet takes samples by KairosDB's telnet protocol, which OpenTSDB's
// put also is. docs/formats/telnet.md has the grammar. A [Command] is the pure parser
// of one line; package lines has the connections.
package telnet
