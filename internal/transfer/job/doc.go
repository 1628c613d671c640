// Package job runs the commands that move points between a place, which is a server or an
// open store, and files: KairosDB's export files and trees of Whisper's files. A job says how
// far it has come, can be interrupted, and goes on where it was.
package job
