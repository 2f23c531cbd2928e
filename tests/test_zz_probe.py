def test_it(trained, tmp_path):
    import random, subprocess, sys, time
    chance = random.Random(1)
    (tmp_path/"l").write_text("".join(f"{' '.join(chance.choices('0123456789', k=6))}\n" for _ in range(100))*15)
    for shell in ("", "ulimit -v 3000000;"):
      for args in ("--threads 1024 --beam-size 4", "--threads 300 --max-length 5000"):
        t=time.time()
        try:
            d=subprocess.run(["sh","-c",f"{shell} exec timeout -s KILL 60 {sys.executable} -m attnkit translate {trained} -i {tmp_path/'l'} -o {tmp_path/'o'} --device cpu {args}"],capture_output=True,text=True,timeout=100)
            print(shell, args, time.time()-t, d.returncode, d.stderr[-600:])
        except Exception as e: print(shell,args,"timeout")
