// Bench measures a Varve server from outside, on whole workloads: one command
// generates the points, starts the server in an empty directory, sends them
// over sockets as collectors do, checks that every point is there, and prints
// what it cost.
//
//	go run ./bench
//
// Server CPU per point is what to compare between machines and versions: wall
// time on a shared machine says little. The numbers are of the server process
// alone, as the operating system accounts them (/proc, Linux only).
package main
