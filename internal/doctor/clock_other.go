//go:build !linux

package doctor

func clockState() syncState { return syncState{} }
