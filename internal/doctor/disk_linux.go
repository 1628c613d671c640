package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// kinds are names of file systems by the f_type of statfs(2).
var kinds = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.TMPFS_MAGIC: "tmpfs", unix.NFS_SUPER_MAGIC: "nfs", unix.SMB2_SUPER_MAGIC: "smb2", unix.CIFS_SUPER_MAGIC: "cifs",
	unix.FUSE_SUPER_MAGIC: "fuse", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.CEPH_SUPER_MAGIC: "ceph", unix.V9FS_MAGIC: "9p",
	0x2fc12fc1: "zfs",
}

func kindOf(dir string) (string, bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return "", false
	}
	if name, ok := kinds[int64(s.Type)]; ok {
		return name, true
	}
	return fmt.Sprintf("%#x", s.Type), true
}
