/* flock of a file system without locks, such as NFS with nolock or Lustre without -o flock. */
#include <errno.h>
#include <stdlib.h>
int flock(int file, int operation) {
    errno = atoi(getenv("FLOCK_ERROR"));
    return -1;
}
