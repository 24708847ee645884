// Writes a file, and keeps it open until standard input ends. To be linked statically: nothing can be preloaded into
// it.
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char byte;
    int fd = argc == 2 ? open(argv[1], O_CREAT | O_WRONLY | O_APPEND, 0600) : -1;
    if (fd < 0 || write(fd, "unseen\n", 7) != 7)
        return 1;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
