/*
 * The first process of a guest that has no Python: makes the system calls that the host names.
 *
 * A request is a line on the console:
 *
 *   call NUMBER ARGUMENT...  a system call. An argument is a number, or =HEX: the address of these
 *                            bytes, which are the last ones before a page that cannot be read
 *   map COUNT                private pages, none of them touched
 *   touch ADDRESS COUNT      write to that many pages
 *   read PATH                a file, up to 64 KiB of it
 *
 * The answer is a line, {"value": ...} or {"error": "..."} behind the mark of guest_init.py. Of a
 * call it is [returned, errno, HEX...], with what each =HEX holds after the call.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#define MARK "@numadoctor-lab "
#define ARGUMENTS 6

static size_t page;

static char *private_pages(size_t count)
{
	char *pages = mmap(NULL, count * page, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

static unsigned char *before_a_wall(const char *hex, size_t *size)
{
	char *pages = private_pages(2);
	unsigned char *start;

	*size = strlen(hex) / 2;
	if (!pages || *size > page || mprotect(pages + page, page, PROT_NONE))
		return NULL;
	start = (unsigned char *)pages + page - *size;
	for (size_t i = 0; i < *size; i++)
		if (sscanf(hex + 2 * i, "%2hhx", start + i) != 1)
			return NULL;
	return start;
}

static void print_hex(const unsigned char *bytes, size_t size)
{
	putchar('"');
	for (size_t i = 0; i < size; i++)
		printf("%02x", bytes[i]);
	putchar('"');
}

static const char *make_call(char *words)
{
	const char *number = strtok(words, " ");
	unsigned char *buffers[ARGUMENTS];
	size_t sizes[ARGUMENTS];
	long value[ARGUMENTS] = { 0 };
	long returned;
	int buffered = 0, given = 0;

	for (char *word; (word = strtok(NULL, " ")); given++) {
		if (given == ARGUMENTS)
			return "too many arguments";
		if (*word != '=') {
			value[given] = (long)strtoul(word, NULL, 0);
			continue;
		}
		buffers[buffered] = before_a_wall(word + 1, &sizes[buffered]);
		if (!buffers[buffered])
			return "no such buffer";
		value[given] = (long)buffers[buffered++];
	}
	if (!number)
		return "no number";
	errno = 0;
	returned = syscall(atol(number), value[0], value[1], value[2], value[3], value[4], value[5]);
	printf(MARK "{\"value\": [%ld, %d", returned, errno);
	for (int i = 0; i < buffered; i++) {
		printf(", ");
		print_hex(buffers[i], sizes[i]);
		munmap(buffers[i] + sizes[i] - page, 2 * page);
	}
	printf("]}\n");
	return NULL;
}

static const char *map(const char *words)
{
	char *pages = private_pages(strtoul(words, NULL, 0));

	if (!pages)
		return "no memory";
	printf(MARK "{\"value\": %lu}\n", (unsigned long)pages);
	return NULL;
}

static const char *touch(char *words)
{
	volatile char *start = (volatile char *)strtoul(words, &words, 0);
	size_t count = strtoul(words, NULL, 0);

	for (size_t i = 0; i < count; i++)
		start[i * page] = 1;
	printf(MARK "{\"value\": null}\n");
	return NULL;
}

static const char *read_file(const char *path)
{
	static unsigned char content[1 << 16];
	FILE *file = fopen(path, "r");
	size_t size;

	if (!file)
		return strerror(errno);
	size = fread(content, 1, sizeof(content), file);
	fclose(file);
	printf(MARK "{\"value\": ");
	print_hex(content, size);
	printf("}\n");
	return NULL;
}

static const char *answer(char *line)
{
	if (!strncmp(line, "call ", 5))
		return make_call(line + 5);
	if (!strncmp(line, "map ", 4))
		return map(line + 4);
	if (!strncmp(line, "touch ", 6))
		return touch(line + 6);
	if (!strncmp(line, "read ", 5))
		return read_file(line + 5);
	return "no such request";
}

int main(void)
{
	static char line[4096];
	struct termios settings;
	const char *wrong;

	if (getpid() != 1)
		return 1;
	page = (size_t)sysconf(_SC_PAGESIZE);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	tcgetattr(0, &settings);
	settings.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(0, TCSANOW, &settings);
	setvbuf(stdout, NULL, _IOLBF, 1 << 17);
	printf(MARK "{\"ready\": {}}\n");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		wrong = answer(line);
		if (wrong)
			printf(MARK "{\"error\": \"%s\"}\n", wrong);
	}
	return reboot(RB_POWER_OFF);
}
