// Package job runs the commands that move points between files and a server or an open store.
// The files are KairosDB's export files or trees of Whisper files. A job shows its progress, can
// be interrupted, and resumes where it stopped.
package job
