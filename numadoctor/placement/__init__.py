"""Where the pages of processes are: sampled, counted by the kernel, or asked one by one."""
