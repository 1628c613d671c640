// Package telnet accepts samples by KairosDB's telnet protocol, which OpenTSDB's put also uses.
// docs/formats/telnet.md has the grammar. A [Command] is the pure parser of one line; package lines
// has the connections.
package telnet
